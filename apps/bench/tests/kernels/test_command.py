import json

import pytest
import torch

from titan_bench.cli import run
from titan_bench.errors import VerificationError
from titan_bench.kernels.command import Request, time_kernels
from titan_bench.kernels.measure import TimedCase
from titan_bench.kernels.plot import geometric_means
from titan_bench.kernels.show_times import print_times


def quiet(_):
    pass


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["rms_nrom"], ["OP (rms_nrom): no operator starts so; there are add_layer_norm"]),
        (["--plot", "x.bmp"], ["--plot (x.bmp): its name must end with .png, .svg, .pdf"]),
        (["--plot", "x.png", "--emulate"], ["--plot (x.png): it draws measured times; leave out --emulate"]),
        (
            ["nothing", "--plot", "x.bmp", "--emulate"],
            ["OP (nothing)", "must end with", "leave out --emulate"],
        ),
        (["--rounds", "3"], ["--rounds"]),
        (["--dtype", "fp8"], ["--dtype"]),
    ],
)
def test_wrong_options_are_named_all_at_once(arguments, words, capsys):
    assert run(["kernels", *arguments]) == 2
    error = capsys.readouterr().err
    assert all(each in error for each in words)
    assert "Traceback" not in error


@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
def test_without_a_gpu_it_says_what_to_do(capsys):
    assert run(["kernels", "rms_norm"]) == 1
    assert "needs an NVIDIA GPU to time; --emulate does without" in capsys.readouterr().err


def test_emulated_figures_as_table_and_json(small, tmp_path, capsys):
    small("relu2")
    small("relu2_backward")
    assert run(["kernels", "relu2", "--emulate", "--json", str(tmp_path / "new/r.json")]) == 0
    table = capsys.readouterr().out
    assert "relu2_backward" in table
    assert "Titan RTX us" in table
    result = json.loads((tmp_path / "new/r.json").read_text())
    assert result["benchmark"] == "kernels-emulated"
    assert result["machine"]["device"] == "emulator"
    assert [(row["op"], row["case"]) for row in result["rows"]] == [
        ("relu2", "tiny"),
        ("relu2_backward", "tiny"),
    ]
    assert all(row["microseconds"]["T4"] > 0 for row in result["rows"])


def test_times_as_table_json_and_chart(small, bench, tmp_path, capsys):
    small("relu2")
    small("relu2_backward")
    request = Request(
        ("relu2",), dtype="fp32", json_path=tmp_path / "r.json", plot_path=tmp_path / "charts/r.svg"
    )
    time_kernels(request, bench, quiet)
    table = capsys.readouterr().out
    assert "relu2_backward" in table
    assert "±" in table
    assert "cuda, all: the tensors are on the CPU" in table
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["benchmark"] == "kernels"
    assert result["rounds"] == 4
    assert {"device", "torch", "triton", "torch-titan-kernels", "precision"} <= set(result["machine"])
    assert set(result["rows"][0]["times"]) == {"triton", "eager", "compile"}
    assert len(result["rows"][0]["times"]["eager"]["seconds"]) == 4
    chart = (tmp_path / "charts/r.svg").read_text()
    assert all(f">{word}<" in chart for word in ("relu2", "relu2_backward", "triton", "compile"))


def test_chart_as_picture(small, bench, tmp_path):
    small("relu2")
    small("relu2_backward")
    time_kernels(Request(("relu2",), plot_path=tmp_path / "r.png"), bench, quiet)
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")


def test_mistake_of_ours_fails_after_the_results_are_saved(small, bench, implement, tmp_path, capsys):
    op = small("relu2")
    small("relu2_backward")
    implement(op, "triton", lambda x: torch.relu(x))
    with pytest.raises(
        VerificationError, match=r"not all of our kernels are right:\nrelu2 \(tiny\), triton: wrong"
    ):
        time_kernels(Request(("relu2",), json_path=tmp_path / "r.json"), bench, quiet)
    assert "wrong" in capsys.readouterr().out
    rows = json.loads((tmp_path / "r.json").read_text())["rows"]
    assert {row["op"]: "triton" in row["times"] for row in rows} == {"relu2": False, "relu2_backward": True}


def rows():
    slow, fast, faster = (4e-6,) * 4, (2e-6,) * 4, (1e-6,) * 4
    first = TimedCase("op", "a", 10**6, ("cuda",), {"cuda": faster, "eager": slow, "compile": fast})
    second = TimedCase("op", "b", 10**6, ("cuda",), {"eager": slow}, {"cuda": "wrong: output 0"})
    third = TimedCase("op", "c", 10**6, ("cuda",), {"cuda": slow, "eager": slow}, {"compile": "failed: x"})
    return [first, second, third]


def test_table_shows_speed_share_and_ratios(capsys):
    print_times(rows(), 1000.0)
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1] == [
        "op",
        "a",
        "1.0",
        "±0%",
        "4.0",
        "±0%",
        "2.0",
        "±0%",
        "-",
        "1,000",
        "100%",
        "4.00x",
        "2.00x",
    ]
    assert lines[2] == ["op", "b", "wrong", "4.0", "±0%", "-", "-", "-", "-", "-", "-"]
    assert lines[3] == ["op", "c", "4.0", "±0%", "4.0", "±0%", "failed", "-", "250", "25%", "1.00x", "-"]
    assert lines[4] == ["cuda,", "op", "(b):", "wrong:", "output", "0"]


def test_unknown_card_has_no_share_of_its_bandwidth(capsys):
    print_times(rows()[:1], None)
    assert capsys.readouterr().out.splitlines()[1].split()[-3:] == ["-", "4.00x", "2.00x"]


def test_chart_shows_geometric_means_over_the_shapes():
    assert geometric_means(rows()) == {"op": {"cuda": pytest.approx(2.0), "compile": pytest.approx(2.0)}}


@pytest.mark.gpu
def test_two_operators_on_the_device(tmp_path, capsys):
    arguments = ["--rounds", "6", "--json", str(tmp_path / "r.json"), "--plot", str(tmp_path / "r.png")]
    assert run(["kernels", "relu2", *arguments]) == 0, capsys.readouterr()
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["machine"]["driver"]
    assert {row["op"] for row in result["rows"]} == {"relu2", "relu2_backward"}
    for row in result["rows"]:
        assert {"eager", "compile"} <= set(row["times"]), row["notes"]
        assert row["ours"] is not None, row["notes"]
        # Faster than the fastest memory there is, or slower than a hundredth of it: not a time of the kernel.
        assert 50 < row["times"][row["ours"]]["gb_per_s"] < 10_000
