"""Reductions in plain PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from titan_kernels.numerics import compute_dtype
from titan_kernels.ops.reduce.collapse import reduced_size
from titan_kernels.ops.reduce.kinds import divisor

__all__ = ["reduce", "var_mean"]

# Of a tensor, dimensions and whether these are kept with size 1.
_FUNCTIONS: dict[str, Callable[[Tensor, list[int], bool], Tensor]] = {
    "sum": lambda x, dims, keepdim: x.sum(dims, keepdim),
    "mean": lambda x, dims, keepdim: x.mean(dims, keepdim),
    "amax": lambda x, dims, keepdim: x.amax(dims, keepdim),
    "norm": lambda x, dims, keepdim: torch.linalg.vector_norm(x, 2.0, dims, keepdim),
    "inf_norm": lambda x, dims, keepdim: torch.linalg.vector_norm(x, torch.inf, dims, keepdim),
}


def _wide(x: Tensor, dtype: torch.dtype | None) -> Tensor:
    return x.to(torch.promote_types(compute_dtype(x.dtype), dtype or x.dtype))


def reduce(
    x: Tensor, kind: str, dims: list[int], keepdim: bool, correction: float, dtype: torch.dtype | None
) -> Tensor:
    """See :func:`titan_kernels.ops.reduce`."""
    if kind == "var":
        return var_mean(x, dims, keepdim, correction, dtype)[0]
    return _FUNCTIONS[kind](_wide(x, dtype), dims, keepdim).to(dtype or x.dtype)


def var_mean(
    x: Tensor, dims: list[int], keepdim: bool, correction: float, dtype: torch.dtype | None
) -> tuple[Tensor, Tensor]:
    """See :func:`titan_kernels.ops.var_mean`."""
    wide = _wide(x, dtype)
    mean = wide.mean(dims, keepdim=True)
    off = wide - mean
    # Once more, for what the rounding of the mean left; it matters beside a large mean.
    squares = (off - off.mean(dims, keepdim=True)).square().sum(dims, keepdim)
    variance = squares / divisor("var", reduced_size(x, dims), correction)
    return variance.to(dtype or x.dtype), mean.view_as(variance).to(dtype or x.dtype)
