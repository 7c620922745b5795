"""Clocks for short calls: CUDA events on a GPU, and the processor's clock for tests."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

__all__ = ["CpuTimer", "CudaTimer", "Runner", "Timed", "Timer", "interleave"]

_FLUSH_BYTES = 256 * 2**20
_L2_FACTOR = 4
_AHEAD_SECONDS = 0.5e-3


class Runner(Protocol):
    """One side of a comparison."""

    def before(self) -> None:
        """What each call needs and nobody times."""

    def run(self) -> Any:
        """The call to time."""


class Timer(Protocol):
    """Times one call."""

    def start(self, run: Callable[[], Any]) -> Callable[[], float]:
        """Run once; the function that is returned gives the seconds, and may wait for them."""


class CpuTimer:
    """For tests of the benchmark itself."""

    def start(self, run: Callable[[], Any]) -> Callable[[], float]:
        """See :class:`Timer`."""
        started = time.perf_counter()
        run()
        seconds = time.perf_counter() - started
        return lambda: seconds


class CudaTimer:
    """Time on the device, from a cold L2 cache, without the host's overhead.

    Before each call a buffer larger than the L2 cache is overwritten, as often as the device needs half
    a millisecond for: meanwhile the host queues up the call, so that kernels follow each other at once.

    Args:
        device: The GPU.
    """

    def __init__(self, device: torch.device) -> None:
        cache = torch.cuda.get_device_properties(device).L2_cache_size
        self._buffer = torch.empty(max(_FLUSH_BYTES, _L2_FACTOR * cache), dtype=torch.uint8, device=device)
        self._writes = 1
        self.start(self._flush)()  # loads the kernel
        seconds = self.start(self._flush)()
        self._writes = max(1, math.ceil(_AHEAD_SECONDS / seconds))

    def _flush(self) -> None:
        for _ in range(self._writes):
            self._buffer.zero_()

    def start(self, run: Callable[[], Any]) -> Callable[[], float]:
        """See :class:`Timer`."""
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        self._flush()
        begin.record()
        run()
        end.record()

        def seconds() -> float:
            end.synchronize()
            milliseconds: float = begin.elapsed_time(end)
            return milliseconds * 1e-3

        return seconds


@dataclass
class Timed:
    """Seconds by runner, round by round, and what went wrong with those that have none."""

    seconds: dict[str, tuple[float, ...]] = field(default_factory=dict)
    failures: dict[str, Exception] = field(default_factory=dict)


def interleave(runners: Mapping[str, Runner], timer: Timer, rounds: int, warmup: int = 3) -> Timed:
    """Run each runner once per round, each round beginning with another one.

    Args:
        runners: By name; one that raises takes no further part.
        timer: The clock.
        rounds: Timed calls per runner.
        warmup: Rounds before that.
    """
    names, timed = list(runners), Timed()
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(-warmup, rounds):
        first = number % max(1, len(names))
        for name in names[first:] + names[:first]:
            if name in timed.failures:
                continue
            try:
                measured = _time(runners[name], timer)
            except Exception as error:  # whatever a competitor's library raises
                timed.failures[name] = error.with_traceback(None)  # whose frames hold tensors
            else:
                seconds[name] += [measured] if number >= 0 else []
    timed.seconds = {name: tuple(seconds[name]) for name in names if name not in timed.failures}
    return timed


def _time(runner: Runner, timer: Timer) -> float:
    runner.before()
    return timer.start(runner.run)()
