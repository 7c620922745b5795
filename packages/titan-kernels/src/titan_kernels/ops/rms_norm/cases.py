"""Arguments for tests, counters and benchmarks of this room."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from titan_kernels.cases import Case, Maker
from titan_kernels.ops.rms_norm import reference

__all__ = ["DECLINED", "add_cases", "backward_cases", "forward_cases"]

_EPS = 1e-5
# rows, columns: one warp, several, a full block; whole vectors and shifted rows
_SHAPES = (
    *((3, 768), (5, 64), (2, 769), (7, 1), (9, 130), (2, 2047), (2, 8192)),
    *((600, 72), (2, 8200), (0, 64), (3, 0)),
)
_REALISTIC = ((16384, 768), (16384, 2048))
# Of long rows, as many as make the parameters' share small; counting them takes seconds.
_LONG, _LONG_BACKWARD = (4096, 8192), (16384, 8192)
_ODD = ((16384, 769), (4096, 4097))
# Rows longer than a block's registers.
DECLINED = {"cuda": ("2x8200",)}

_Make = Callable[..., tuple[Any, ...]]


def _weight(m: Maker, columns: int, dtype: torch.dtype | None = None) -> Tensor:
    return m.uniform(columns, low=0.5, high=1.5, dtype=dtype)


def _shaped(make: _Make, long: tuple[int, int] = _LONG) -> list[Case]:
    """Cases by shape; the odd ones touch every sector at a row's ends twice."""
    shapes = [*((s, False, 1.02) for s in _SHAPES), *((s, True, 1.02) for s in (*_REALISTIC, long))]
    shapes += [(s, True, 1.15) for s in _ODD]
    return [
        Case(f"{rows}x{n}", partial(make, rows=rows, columns=n), large, bound)
        for (rows, n), large, bound in shapes
    ]


def _forward(m: Maker, rows: int, columns: int) -> tuple[Any, ...]:
    return m.normal(rows, columns), _weight(m, columns), _EPS


def _add(m: Maker, rows: int, columns: int) -> tuple[Any, ...]:
    return m.normal(rows, columns), m.normal(rows, columns), _weight(m, columns), _EPS


def _backward(
    m: Maker, rows: int, columns: int, weight: bool = True, dsum: bool = True, wanted: str = "dx, dweight"
) -> tuple[Any, ...]:
    x = m.normal(rows, columns)
    w = _weight(m, columns) if weight else None
    _, rstd = m.derived(reference.rms_norm, x, w, _EPS)
    mask = ["dx" in wanted, weight and "dweight" in wanted]
    return m.normal(rows, columns), x, w, rstd, m.normal(rows, columns) if dsum else None, mask


def forward_cases() -> list[Case]:
    """For ``titan::rms_norm``."""
    return [
        *_shaped(_forward),
        Case("no weight", lambda m: (m.normal(4, 96), None, _EPS)),
        Case("fp32 weight", lambda m: (m.normal(4, 96), _weight(m, 96, torch.float32), _EPS)),
        Case("1 dim", lambda m: (m.normal(80), _weight(m, 80), _EPS)),
        Case("3 dims", lambda m: (m.normal(2, 3, 80), _weight(m, 80), _EPS)),
        Case("strided", lambda m: (m.normal(96, 6).t(), _weight(m, 192)[::2], _EPS)),
        Case("unaligned", lambda m: (m.normal(4 * 97 + 1)[1:].view(4, 97), _weight(m, 98)[1:], _EPS)),
        Case("large values", lambda m: (m.normal(4, 256, scale=1e4), _weight(m, 256), _EPS)),
        Case("zero row", lambda m: (m.normal(4, 256) * 0, _weight(m, 256), _EPS)),
    ]


def add_cases() -> list[Case]:
    """For ``titan::add_rms_norm``."""
    return _shaped(_add)


def backward_cases() -> list[Case]:
    """For ``titan::rms_norm_backward``, with and without weight and ``dsum``."""
    return [
        *_shaped(_backward, _LONG_BACKWARD),
        Case("no weight", lambda m: _backward(m, 5, 96, weight=False)),
        Case("no dsum", lambda m: _backward(m, 300, 130, dsum=False)),
        *(
            Case(f"{n} columns, {wanted} only", partial(_backward, rows=40, columns=n, wanted=wanted))
            for n in (96, 97)
            for wanted in ("dx", "dweight")
        ),
    ]
