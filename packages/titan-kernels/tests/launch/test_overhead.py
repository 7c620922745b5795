"""What a launch costs on the host, from the Python call to the driver's entry."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable

import pytest
import torch
from stub_driver import OnGpu, Stub

from titan_kernels.launch import launch

LIMIT_US = 6.0
REPEATS, CALLS = 30, 2000


class Quick(OnGpu):
    """Answers in C, as a CUDA tensor does."""

    get_device = staticmethod(itertools.repeat(0).__next__)  # type: ignore[assignment]
    is_cuda = True  # type: ignore[assignment]


def microseconds(call: Callable[[], object]) -> float:
    """Of one call; the best of several rounds, since other processes only ever add."""
    best = float("inf")
    for _ in range(REPEATS):
        begin = time.perf_counter()
        for _ in range(CALLS):
            call()
        best = min(best, time.perf_counter() - begin)
    return best / CALLS * 1e6


def test_host_overhead(stub: Stub, capsys: pytest.CaptureFixture[str]) -> None:
    # Seven pointers and three numbers: what rms_norm's forward takes.
    args = (*(torch.zeros(4, 4).as_subclass(Quick) for _ in range(7)), 4, 4, 64)
    stub.make_current(0)
    stub.launch("big", (72, 1, 1), 256, args, 4096)
    stub.record(False)
    ours = microseconds(lambda: launch("probe", "big", (72, 1, 1), 256, args, 4096))

    library = torch.library.Library("titan_test_overhead", "DEF")
    library.define("nothing(Tensor x) -> Tensor")
    library.impl("nothing", lambda x: x, "CPU")
    x, out = torch.zeros(1), torch.zeros(1)
    add = microseconds(lambda: torch.add(x, x, out=out))
    custom = microseconds(lambda: torch.ops.titan_test_overhead.nothing(x))
    with capsys.disabled():
        sys.stdout.write(
            f"\nlaunch, 10 arguments: {ours:.2f} us; torch.add on one element: {add:.2f} us; "
            f"torch.library op that does nothing: {custom:.2f} us\n"
        )
    assert ours <= LIMIT_US
