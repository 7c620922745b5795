"""Arguments for tests, counters and benchmarks of this room."""

from __future__ import annotations

from typing import Any

import torch

from titan_kernels.cases import Case, Maker
from titan_kernels.ops.reduce.kinds import KINDS

__all__ = ["EMPTY", "reduce_cases", "var_mean_cases"]

# Cases that only the reference serves.
EMPTY = ("sum (0, 4) over 0", "mean (3, 0) over 1", "norm (3, 0) over 1", "var (0,) over 0")

# Shape, reduced dimensions.
_SMALL: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((5, 96), (1,)),
    ((5, 96), (0,)),
    ((3, 2049), (1,)),
    ((301, 61), (0,)),
    ((7, 1), (1,)),
    ((7, 1), (0,)),
    ((40, 3), (0,)),
    ((3, 33, 17), (1,)),
    ((3, 8, 64), (1,)),
    ((4, 5, 33), (0, 2)),
    ((3, 4, 5, 6), (1, 3)),
    ((3, 4, 5, 6), (0, 1, 2, 3)),
    ((2, 40000), (1,)),
    ((1030, 520), (0,)),
    ((0, 4), (1,)),
    ((), ()),
)
_REALISTIC: tuple[tuple[tuple[int, ...], tuple[int, ...], float], ...] = (
    *(((r, n), (d,), 1.02) for r, n in ((16384, 768), (8192, 2048), (4096, 8192)) for d in (0, 1)),
    *(((r, n), (d,), 1.15) for r, n in ((16384, 769), (4096, 2049)) for d in (0, 1)),
    ((8192, 4096), (0, 1), 1.02),
    ((32, 512, 768), (1,), 1.02),
    ((32, 64, 56, 56), (0, 2, 3), 1.02),
)


def _label(shape: tuple[int, ...], dims: tuple[int, ...]) -> str:
    return f"{shape} over {', '.join(map(str, dims)) or 'nothing'}"


def _case(label: str, make: Any, large: bool = False, bound: float = 1.02) -> Case:
    return Case(label, make, large, bound)


def _numbers(m: Maker, shape: tuple[int, ...]) -> torch.Tensor:
    """About 1: sums that nearly cancel would measure the order of the terms only."""
    return m.normal(*shape) + 1.0


def reduce_cases() -> list[Case]:
    """For ``titan::reduce``."""

    def of(kind: str, shape: tuple[int, ...], dims: tuple[int, ...], *bound: float) -> Case:
        label = f"{kind} {_label(shape, dims)}"
        return _case(label, lambda m: (_numbers(m, shape), kind, dims, False, 1.0, None), bool(bound), *bound)

    def special(label: str, make: Any, kind: str = "sum", dims: tuple[int, ...] = (1,)) -> Case:
        return _case(label, lambda m: (make(m), kind, dims, True, 1.0, None))

    return [
        *(of(kind, *shape) for kind in KINDS for shape in _SMALL if kind != "var" or shape[0] != ()),
        of("sum", (0, 4), (0,)),
        of("mean", (3, 0), (1,)),
        of("norm", (3, 0), (1,)),
        of("var", (0,), (0,)),
        *(special(f"{kind} transposed", lambda m: _numbers(m, (30, 20)).t(), kind) for kind in KINDS),
        special("strided", lambda m: _numbers(m, (9, 40))[:, ::2]),
        special("unaligned", lambda m: _numbers(m, (98,))[1:].view(1, 97)),
        special("permuted", lambda m: _numbers(m, (4, 5, 6)).permute(2, 0, 1), dims=(0, 2)),
        special("expanded", lambda m: _numbers(m, (4, 1)).expand(4, 6)),
        *(special(f"{kind} with NaN", _with_nan, kind) for kind in KINDS),
        _case("fp32 result", lambda m: (_numbers(m, (5, 96)), "sum", (1,), False, 1.0, torch.float32)),
        _case("population variance", lambda m: (_numbers(m, (5, 96)), "var", (0,), False, 0.0, None)),
        *(of("sum", *shape) for shape in _REALISTIC),
        *(of("var", *shape) for shape in _REALISTIC[:4]),
    ]


def _with_nan(m: Maker) -> torch.Tensor:
    x = _numbers(m, (4, 300))
    x[1, 7], x[2, 250], x[3, 3] = float("nan"), float("inf"), -float("inf")
    return x


def var_mean_cases() -> list[Case]:
    """For ``titan::var_mean``."""

    def of(shape: tuple[int, ...], dims: tuple[int, ...], *bound: float) -> Case:
        return _case(
            _label(shape, dims),
            lambda m: (_numbers(m, shape), dims, False, 1.0, None),
            bool(bound),
            *bound,
        )

    return [
        *(of(*shape) for shape in _SMALL if shape[0] != ()),
        _case("large mean", lambda m: (m.normal(64, 40) + 200.0, (0,), True, 1.0, None)),
        *(of(*shape) for shape in _REALISTIC),
    ]
