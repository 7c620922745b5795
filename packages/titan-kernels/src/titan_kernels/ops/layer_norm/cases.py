"""Arguments for tests, counters and benchmarks of this room."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from titan_kernels.cases import Case, Maker
from titan_kernels.ops.layer_norm import reference

__all__ = ["DECLINED", "add_cases", "backward_cases", "forward_cases"]

_EPS = 1e-5
# rows, columns: one warp, several, a full block; whole vectors and shifted rows
_SHAPES = (
    *((3, 768), (5, 64), (2, 769), (7, 1), (9, 130), (2, 2047), (2, 4104), (2, 8192)),
    *((4, 33), (600, 72), (2, 8200), (2, 8191), (0, 64), (3, 0)),
)
_REALISTIC = ((16384, 768), (16384, 2048))
# Of long rows, as many as make the parameters' share small; counting them takes seconds.
_LONG, _LONG_BACKWARD = (4096, 8192), (16384, 8192)
_ODD = ((16384, 769), (4096, 4097))
# Rows longer than the block's registers, and shifted rows too long for shared memory.
DECLINED = {"cuda": ("2x8200", "2x8191")}

_Make = Callable[[Maker, int, int], tuple[Any, ...]]


def _parameter(m: Maker, columns: int, dtype: torch.dtype | None = None) -> Tensor:
    return m.uniform(columns, low=0.5, high=1.5, dtype=dtype)


def _parameters(m: Maker, columns: int, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    return _parameter(m, columns, dtype), _parameter(m, columns, dtype) - 1


def _rows(m: Maker, rows: int, columns: int) -> Tensor:
    """Rows whose mean is not the small rest of a cancellation, which no sum in fp32 gets right."""
    return m.normal(rows, columns) + 0.5


def _shaped(make: _Make, long: tuple[int, int] = _LONG) -> list[Case]:
    """Cases by shape; the odd ones touch every sector at a row's ends twice."""
    bounded = [
        *((shape, False, 1.02) for shape in _SHAPES),
        *((shape, True, 1.02) for shape in (*_REALISTIC, long)),
        *((shape, True, 1.15) for shape in _ODD),
    ]
    return [Case(f"{rows}x{n}", _of(make, rows, n), large, bound) for (rows, n), large, bound in bounded]


def _of(make: _Make, rows: int, columns: int) -> Callable[[Maker], tuple[Any, ...]]:
    return lambda m: make(m, rows, columns)


def forward_cases() -> list[Case]:
    """For ``titan::layer_norm``."""
    shaped = _shaped(lambda m, rows, n: (_rows(m, rows, n), *_parameters(m, n), _EPS))
    return [
        *shaped,
        Case("no parameters", lambda m: (m.normal(4, 96), None, None, _EPS)),
        Case("no bias", lambda m: (m.normal(4, 97), _parameter(m, 97), None, _EPS)),
        Case("no weight", lambda m: (m.normal(4, 96), None, _parameter(m, 96), _EPS)),
        Case("fp32 parameters", lambda m: (m.normal(4, 96), *_parameters(m, 96, torch.float32), _EPS)),
        Case("fp32 bias", lambda m: (m.normal(4, 97), _parameter(m, 97), m.normal(97).float(), _EPS)),
        Case("3 dims", lambda m: (m.normal(2, 3, 80), *_parameters(m, 80), _EPS)),
        Case("strided", lambda m: (m.normal(96, 6).t(), *(p[::2] for p in _parameters(m, 192)), _EPS)),
        Case("unaligned", lambda m: (m.normal(4 * 97 + 1)[1:].view(4, 97), *_parameters(m, 97), _EPS)),
        Case("large mean", lambda m: (m.normal(4, 256) + 100, *_parameters(m, 256), _EPS)),
        Case("large values", lambda m: (m.normal(4, 256, scale=1e4), *_parameters(m, 256), _EPS)),
        Case("constant rows", lambda m: (m.normal(4, 256) * 0 + 3, *_parameters(m, 256), _EPS)),
    ]


def add_cases() -> list[Case]:
    """For ``titan::add_layer_norm``."""

    def make(m: Maker, rows: int, columns: int) -> tuple[Any, ...]:
        return _rows(m, rows, columns), m.normal(rows, columns), *_parameters(m, columns), _EPS

    return _shaped(make)


def _backward(
    m: Maker,
    rows: int,
    columns: int,
    given: str = "weight, bias",
    dsum: bool = True,
    wanted: str = "dx, dweight, dbias",
) -> tuple[Any, ...]:
    x, (w, b) = _rows(m, rows, columns), _parameters(m, columns)
    _, statistics = m.derived(reference.layer_norm, x, w, b, _EPS)
    mask = ["dx" in wanted, *(name in given and f"d{name}" in wanted for name in ("weight", "bias"))]
    parameters = w if "weight" in given else None, b if "bias" in given else None
    return (
        m.normal(rows, columns),
        x,
        *parameters,
        statistics,
        m.normal(rows, columns) if dsum else None,
        mask,
    )


def backward_cases() -> list[Case]:
    """For ``titan::layer_norm_backward``, with and without ``dsum``."""
    return [
        # The partial sums of one or two blocks per multiprocessor come on top.
        *_shaped(_backward, _LONG_BACKWARD),
        Case("no parameters", lambda m: _backward(m, 5, 96, given="")),
        Case("no weight", lambda m: _backward(m, 5, 97, given="bias")),
        Case("no bias", lambda m: _backward(m, 5, 96, given="weight")),
        Case("no dsum", lambda m: _backward(m, 300, 130, dsum=False)),
        *(
            Case(f"{n} columns, {wanted} only", partial(_backward, rows=40, columns=n, wanted=wanted))
            for n in (96, 97)
            for wanted in ("dx", "dweight", "dbias")
        ),
    ]
