"""Timing two sides of a comparison fairly: interleaved in one run, by medians."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Comparison", "interleave"]


@dataclass(frozen=True)
class Comparison:
    """Seconds per call of two sides, call by call.

    Attributes:
        ours: one number per round.
        theirs: likewise; round i of both sides ran one after the other.
    """

    ours: tuple[float, ...]
    theirs: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """Our speed over theirs: the median of the rounds' ratios.

        Both sides of a round ran under nearly the same load of the machine, so a ratio within a
        round is steadier than one of two medians.
        """
        return statistics.median(theirs / ours for ours, theirs in zip(self.ours, self.theirs, strict=True))

    @property
    def spread(self) -> tuple[float, float]:
        """First and third quartile of the rounds' ratios."""
        ratios = [theirs / ours for ours, theirs in zip(self.ours, self.theirs, strict=True)]
        if len(ratios) < 2:
            return ratios[0], ratios[0]
        first, _, third = statistics.quantiles(ratios, n=4)
        return first, third


def interleave(ours: Callable[[], None], theirs: Callable[[], None], rounds: int) -> Comparison:
    """Call both sides once per round, taking turns at being first."""
    seconds: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        order = (0, 1) if number % 2 == 0 else (1, 0)
        for side in order:
            seconds[side].append(_time((ours, theirs)[side]))
    return Comparison(tuple(seconds[0]), tuple(seconds[1]))


def _time(call: Callable[[], None]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
