"""Arguments for tests, counters and benchmarks of this room."""

from __future__ import annotations

from functools import partial
from typing import Any

from titan_kernels.cases import Case, Maker

__all__ = ["cases"]

_SHAPES = ((4, 768), (3, 769), (1, 1), (0, 8))
_REALISTIC = ((4096, 2048), (2048, 4097))


def _make(m: Maker, rows: int, columns: int) -> tuple[Any, ...]:
    return m.normal(rows, columns), 0.5


def cases() -> list[Case]:
    """Small and odd shapes, views that no vector access fits, and shapes as in training."""
    return [
        *(Case(f"{r}x{n}", partial(_make, rows=r, columns=n)) for r, n in _SHAPES),
        *(Case(f"{r}x{n}", partial(_make, rows=r, columns=n), realistic=True) for r, n in _REALISTIC),
        Case("transposed", lambda m: (m.normal(6, 80).t(), 0.5)),
        Case("unaligned", lambda m: (m.normal(101)[1:], 0.5)),
    ]
