import json
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from titan_bench.cli import run
from titan_bench.errors import VerificationError
from titan_bench.kernels.command import Request, time_kernels
from titan_bench.kernels.measure import TimedCase
from titan_bench.kernels.plot import geometric_means
from titan_bench.kernels.show_times import print_times
from titan_kernels import images
from titan_kernels.errors import TitanKernelsError
from titan_kernels.registry import ops


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
        (["--jobs", "2"], ["--jobs (2): only --emulate runs in several processes; leave it out"]),
        (["--jobs", "0", "--emulate"], ["--jobs"]),
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
    arguments = ["kernels", "relu2", "--emulate", "--jobs", "1", "--json", str(tmp_path / "new/r.json")]
    assert run(arguments) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split()[:3] == ["op", "shape", "sectors"]
    assert "Titan RTX us" in table[0]
    assert [line.split()[0] for line in table[1:3]] == ["relu2", "relu2_backward"]
    end = table[0].index("sectors") + len("sectors")
    assert all(line[:end].endswith(f" {line.split()[2]}") for line in table[1:3])  # numbers stand in columns
    result = json.loads((tmp_path / "new/r.json").read_text())
    assert result["benchmark"] == "kernels-emulated"
    assert result["machine"]["device"] == "emulator"
    assert result["complete"] is True
    assert result["mistakes"] == []
    assert [(row["op"], row["case"]) for row in result["rows"]] == [
        ("relu2", "tiny"),
        ("relu2_backward", "tiny"),
    ]
    assert all(row["microseconds"]["T4"] > 0 for row in result["rows"])


def test_predictions_that_leave_something_out_are_marked(small, capsys):
    small("embedding_backward")
    assert run(["kernels", "embedding_backward", "--emulate", "--jobs", "1"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert all(cell.endswith("+") for cell in table[1].split()[7:11])
    assert table[2] == (
        "+ embedding_backward: without PyTorch's sort, arange, searchsorted, whose time is not predicted"
    )


@pytest.mark.parametrize("stop", [KeyboardInterrupt, torch.OutOfMemoryError])
def test_what_is_known_is_kept_when_the_emulation_ends_early(small, implement, tmp_path, capsys, stop):
    def stopped(*_):
        raise stop

    small("relu2")
    implement(small("relu2_backward"), "cuda", stopped)
    arguments = ["kernels", "relu2", "--emulate", "--jobs", "1", "--json", str(tmp_path / "r.json")]
    if stop is KeyboardInterrupt:
        assert run(arguments) == 130
    else:
        with pytest.raises(stop):
            run(arguments)
    assert capsys.readouterr().out.splitlines()[1].startswith("relu2 ")
    result = json.loads((tmp_path / "r.json").read_text())
    assert [row["op"] for row in result["rows"]] == ["relu2"]
    assert result["complete"] is False


def test_mistake_fails_after_the_others_figures(small, implement, tmp_path, capsys):
    implement(small("relu2"), "cuda", torch.relu)
    small("relu2_backward")
    arguments = ["kernels", "relu2", "--emulate", "--jobs", "1", "--json", str(tmp_path / "r.json")]
    assert run(arguments) == 1
    printed = capsys.readouterr()
    assert "not all of our kernels are right:\nrelu2: " in printed.err
    assert printed.out.splitlines()[1].startswith("relu2_backward ")
    result = json.loads((tmp_path / "r.json").read_text())
    assert result["complete"] is True
    assert result["mistakes"][0].startswith("relu2: ")


def test_a_copy_that_is_not_built_is_no_traceback(monkeypatch, capsys):
    def missing():
        raise TitanKernelsError("this copy of titan_kernels is not built: pip install it")

    monkeypatch.setattr(images, "units", missing)
    assert run(["kernels", "relu2", "--emulate"]) == 1
    assert "error: this copy of titan_kernels is not built" in capsys.readouterr().err


COMMAND = [sys.executable, "-m", "titan_bench", "kernels", "relu2", "--emulate", "--jobs", "2"]


@pytest.mark.slow
def test_processes_share_the_work(tmp_path):
    done = subprocess.run([*COMMAND, "--json", str(tmp_path / "r.json")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [(row["op"], row["case"]) for row in json.loads((tmp_path / "r.json").read_text())["rows"]]
    chosen = [ops()[name] for name in ("relu2", "relu2_backward")]
    assert rows == [(op.name, case.label) for op in chosen for case in op.cases() if case.realistic]


@pytest.mark.slow
def test_ctrl_c_ends_all_processes_at_once(tmp_path):
    path = tmp_path / "r.json"
    command, pipe = [*COMMAND, "--json", str(path)], subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, start_new_session=True) as process:
        lines = [process.stdout.readline() for _ in range(2)]
        os.killpg(process.pid, signal.SIGINT)
        process.communicate(timeout=60)
    assert lines[1].startswith(b"relu2 ")
    assert process.returncode == 130
    assert json.loads(path.read_text())["complete"] is False
    tries = 300  # the system may take a moment
    while in_group(process.pid) and (tries := tries - 1):
        time.sleep(0.1)
    assert tries


def in_group(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


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
