import dataclasses
import sys

import pytest
import torch

from titan_bench.kernels import eager
from titan_bench.kernels.measure import TimedCase, measure
from titan_kernels.ops.rms_norm import reference


def measured(op, bench):
    (row,) = measure([op], bench, lambda _: None)
    return row


def test_all_candidates_of_an_operator_are_timed_in_one_run(small, bench):
    row = measured(small("rms_norm"), bench)
    assert (row.op, row.case, row.own) == ("rms_norm", "tiny", ("cuda", "triton"))
    assert set(row.seconds) == {"triton", "eager", "compile"}
    assert all(len(each) == 4 and min(each) > 0 for each in row.seconds.values())
    assert "CPU" in row.notes["cuda"]
    assert row.ours == "triton"
    assert row.minimum_bytes == 4 * (2 * 3 * 768 + 768 + 3)  # x and y, weight, 1 / RMS
    assert not row.mistakes


def test_triton_kernel_is_timed(small, bench):
    pytest.importorskip("triton")
    assert "triton" in measured(small("relu2", interpreted=True), bench).seconds


def test_backward_is_timed_without_its_forward(small, bench, peers):
    events = []

    def forward(*args):
        events.append("forward")
        return eager.add_rms_norm(*args)

    class Timer:
        def start(self, run):
            events.append("start")
            run()
            events.append("stop")
            return lambda: 1.0

    op = small("rms_norm_backward")
    peers(op, eager=forward)
    row = measured(op, dataclasses.replace(bench, timer=Timer(), compiler=lambda function: function))
    assert len(row.seconds["eager"]) == 4
    inside = [events[i + 1] for i, event in enumerate(events) if event == "start"]
    assert set(inside) == {"stop"}
    assert events.count("forward") >= 8


def test_wrong_implementation_of_ours_gets_no_time_and_is_a_mistake(small, bench, implement):
    op = small("rms_norm")
    implement(op, "triton", lambda x, weight, eps: (x * 1.001, reference.rms_norm(x, weight, eps)[1]))
    row = measured(op, bench)
    assert "triton" not in row.seconds
    assert row.notes["triton"].startswith("wrong: output 0")
    assert len(row.mistakes) == 1
    assert "rms_norm (tiny), triton" in row.mistakes[0]
    assert set(row.seconds) == {"eager", "compile"}


def test_nan_is_wrong(small, bench, implement):
    op = small("rms_norm")

    def with_nan(x, weight, eps):
        y, rstd = reference.rms_norm(x, weight, eps)
        y[1, 5] = torch.nan
        return y, rstd

    implement(op, "triton", with_nan)
    assert measured(op, bench).notes["triton"].startswith("wrong: output 0")


def test_wrong_counterpart_gets_no_time_and_is_no_mistake_of_ours(small, bench, peers):
    op = small("rms_norm")
    peers(op, eager=lambda x, weight, eps: eager.rms_norm(x, weight, eps) * 1.01)
    row = measured(op, bench)
    assert set(row.seconds) == {"triton"}
    assert row.notes["eager"].startswith("wrong")
    assert row.notes["compile"].startswith("wrong")
    assert not row.mistakes
    assert row.speedup("triton", "eager") is None


def test_counterpart_may_be_less_exact_by_the_stated_bound_only(small, bench, peers):
    op = small("rms_norm")

    def off_by(relative):
        def function(x, weight, eps):
            return (eager.rms_norm(x.double(), weight.double(), eps) * (1 + relative)).float()

        return function

    peers(op, eager=off_by(2 * 2**-24))
    assert "eager" in measured(op, bench).seconds
    peers(op, eager=off_by(200 * 2**-24))
    assert "eager" not in measured(op, bench).seconds


@pytest.mark.parametrize(
    ("error", "note"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "out of memory"),
        (RuntimeError("no kernel image\nfor this card"), "failed: RuntimeError: no kernel image"),
    ],
)
def test_counterpart_that_raises_gets_a_note(small, bench, peers, error, note):
    def raising(*_):
        raise error

    op = small("rms_norm")
    peers(op, liger=raising)
    row = measured(op, bench)
    assert row.notes["liger"] == note
    assert set(row.seconds) == {"triton", "eager", "compile"}
    assert not row.mistakes


def test_failure_of_ours_is_a_mistake(small, bench, implement):
    def raising(*_):
        raise RuntimeError("illegal address")

    op = small("rms_norm")
    implement(op, "triton", raising)
    row = measured(op, bench)
    assert row.notes["triton"] == "failed: RuntimeError: illegal address"
    assert len(row.mistakes) == 1


def test_counterpart_that_fails_later_takes_no_further_part(small, bench, peers):
    calls = []

    def tires(x, weight, eps):
        calls.append(1)
        if len(calls) == 6:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return eager.rms_norm(x, weight, eps)

    op = small("rms_norm")
    peers(op, liger=tires)
    row = measured(op, bench)
    assert "liger" not in row.seconds
    assert row.notes["liger"] == "failed: OutOfMemoryError: CUDA out of memory"
    assert len(calls) == 6
    assert len(row.seconds["eager"]) == 4


def test_liger_that_is_not_installed_gets_a_note(small, bench, monkeypatch):
    monkeypatch.setitem(sys.modules, "liger_kernel", None)
    row = measured(small("rms_norm"), bench)
    assert row.notes["liger"] == "liger-kernel is not installed (pip install liger-kernel)"


def test_counterpart_may_overwrite_its_arguments(small, bench, peers):
    def overwriting(x, weight, eps):
        y = eager.rms_norm(x, weight, eps)
        x.fill_(torch.nan)
        return y

    op = small("rms_norm")
    peers(op, liger=overwriting)
    row = measured(op, bench)
    assert set(row.seconds) == {"triton", "eager", "compile", "liger"}


def test_operator_that_writes_in_place_starts_from_the_same_values(small, bench):
    row = measured(small("rope_"), bench)
    assert set(row.seconds) == {"triton", "eager", "compile"}


def test_operator_without_counterpart_says_so(small, bench):
    row = measured(small("cross_entropy_partial"), bench)
    assert set(row.seconds) == {"triton"}
    assert "DTensor" in row.notes["eager"]


def test_figures_come_from_the_rounds():
    # Seconds of rounds under growing load; ours is always twice as fast.
    ours, theirs = (1e-6, 2e-6, 3e-6, 8e-6), (2e-6, 4e-6, 6e-6, 16e-6)
    row = TimedCase("op", "case", 5000, ("cuda", "triton"), {"triton": ours, "eager": theirs})
    assert row.ours == "triton"
    assert row.median("triton") == pytest.approx(2.5e-6)
    assert row.median("cuda") is None
    assert row.bytes_per_second("triton") == pytest.approx(2e9)
    assert row.speedup("triton", "eager") == pytest.approx(2.0)
    assert row.speedup("triton", "compile") is None
    times = row.to_dict()["times"]["triton"]
    assert times["median_us"] == pytest.approx(2.5)
    assert times["quartiles_us"] == pytest.approx([1.25, 6.75])
    assert times["speedup_over_compile"] is None
