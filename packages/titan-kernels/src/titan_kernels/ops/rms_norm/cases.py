"""Arguments for tests, counters and benchmarks of this room."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from titan_kernels.cases import Case, Maker
from titan_kernels.ops.rms_norm import reference

__all__ = ["add_cases", "backward_cases", "forward_cases"]

_EPS = 1e-5
# rows, columns; the last two columns need v4 plans
_SHAPES = ((3, 768), (5, 64), (2, 769), (7, 1), (4, 130), (2, 2047), (2, 8200), (0, 64), (3, 0))
_REALISTIC = ((16384, 768), (8192, 2048), (4096, 8192))
_ODD = ((16384, 769), (4096, 4097))


def _rows(m: Maker, rows: int, columns: int) -> Tensor:
    return m.normal(rows, columns)


def _shapes() -> list[tuple[int, int, bool, float]]:
    small = [(*shape, False, 1.02) for shape in _SHAPES]
    return [*small, *((*s, True, 1.02) for s in _REALISTIC), *((*s, True, 1.15) for s in _ODD)]


def _weight(m: Maker, columns: int, dtype: torch.dtype | None = None) -> Tensor:
    return m.uniform(columns, low=0.5, high=1.5, dtype=dtype)


def forward_cases() -> list[Case]:
    """For ``titan::rms_norm``."""
    cases = [
        Case(f"{r}x{n}", lambda m, r=r, n=n: (_rows(m, r, n), _weight(m, n), _EPS), large, bound)
        for r, n, large, bound in _shapes()
    ]
    return [
        *cases,
        Case("no weight", lambda m: (_rows(m, 4, 96), None, _EPS)),
        Case("fp32 weight", lambda m: (_rows(m, 4, 96), _weight(m, 96, torch.float32), _EPS)),
        Case("3 dims", lambda m: (m.normal(2, 3, 80), _weight(m, 80), _EPS)),
        Case("strided", lambda m: (m.normal(96, 6).t(), _weight(m, 192)[::2], _EPS)),
        Case("unaligned", lambda m: (m.normal(4 * 97 + 1)[1:].view(4, 97), _weight(m, 98)[1:], _EPS)),
        Case("large values", lambda m: (m.normal(4, 256, scale=1e4), _weight(m, 256), _EPS)),
        Case("zero row", lambda m: (m.normal(4, 256) * 0, _weight(m, 256), _EPS)),
    ]


def add_cases() -> list[Case]:
    """For ``titan::add_rms_norm``."""
    return [
        Case(
            f"{r}x{n}",
            lambda m, r=r, n=n: (_rows(m, r, n), _rows(m, r, n), _weight(m, n), _EPS),
            large,
            bound,
        )
        for r, n, large, bound in _shapes()
    ]


def backward_cases() -> list[Case]:
    """For ``titan::rms_norm_backward``, with and without ``dsum``."""

    def make(m: Maker, rows: int, columns: int, weight: bool = True, dsum: bool = True) -> tuple[Any, ...]:
        x = _rows(m, rows, columns)
        w = _weight(m, columns) if weight else None
        _, rstd = reference.rms_norm(x, w, _EPS)
        return m.normal(rows, columns), x, w, rstd, m.normal(rows, columns) if dsum else None

    cases = [
        Case(f"{r}x{n}", lambda m, r=r, n=n: make(m, r, n), large, bound) for r, n, large, bound in _shapes()
    ]
    return [
        *cases,
        Case("no weight", lambda m: make(m, 5, 96, weight=False)),
        Case("no dsum", lambda m: make(m, 300, 130, dsum=False)),
    ]
