import pytest
import torch

from titan_bench.errors import BenchError
from titan_bench.kernels.emulate import CARDS, emulate
from titan_kernels import images


def test_counts_and_predictions_of_a_kernel(small):
    told = []
    (row,) = emulate([small("relu2")], torch.float16, told.append)
    assert told == ["relu2: 1 shapes"]
    assert len(row.kernels) == 1
    assert row.kernels[0].startswith("glu_relu2")
    assert 1.0 <= row.sectors < 1.5
    assert row.wavefronts == 1.0
    assert row.spills == 0
    assert 0 < row.registers <= 255
    assert set(row.microseconds) == {label for label, *_ in CARDS}
    assert all(3.0 <= each < 10.0 for each in row.microseconds.values())  # hardly more than a launch
    assert all(0 < each <= 1 for each in (*row.of_bound.values(), *row.occupancy.values()))


def test_wrong_kernel_gets_no_figures(small, implement):
    op = small("relu2")
    implement(op, "cuda", torch.relu)
    with pytest.raises(BenchError, match=r"relu2 .* is wrong, so its speed says nothing: output 0"):
        emulate([op], torch.float16, lambda _: None)


def test_kernel_that_cannot_run_gets_no_figures(small, implement):
    from titan_kernels.errors import EmulatorError

    def racing(*_):
        place = {"block": (0, 0, 0), "thread": (0, 0, 0), "file": "kernel.cu", "line": 1, "seed": 1}
        raise EmulatorError("a race", rule="shared-race", kernel="k", **place)

    op = small("relu2")
    implement(op, "cuda", racing)
    with pytest.raises(BenchError, match="a race"):
        emulate([op], torch.float16, lambda _: None)


def test_kernel_that_was_not_compiled_says_what_to_do(small, monkeypatch):
    monkeypatch.setattr(images, "info", lambda _unit, _arch: {})
    with pytest.raises(BenchError, match="its sources changed since it was built, install it again"):
        emulate([small("relu2")], torch.float16, lambda _: None)
