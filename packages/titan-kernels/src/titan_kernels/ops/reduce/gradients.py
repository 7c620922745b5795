"""Gradients of the reductions: element-wise, so PyTorch's own operators do.

They are differentiable themselves.  Gradients of the results are brought to fp32 first, which costs
nothing as there are few of them, and the products are rounded once.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from titan_kernels.numerics import compute_dtype
from titan_kernels.ops.reduce.collapse import reduced_size

__all__ = ["backward", "backward_var_mean"]


def _spread(y: Tensor, dims: list[int], keepdim: bool) -> Tensor:
    """A result, or its gradient, with the dimensions of x and in the dtype to compute in."""
    wide = y.to(compute_dtype(y.dtype))
    for d in () if keepdim else dims:
        wide = wide.unsqueeze(d)
    return wide


def backward(
    grad: Tensor,
    x: Tensor | None,
    y: Tensor | None,
    kind: str,
    dims: list[int],
    keepdim: bool,
    correction: float,
    shape: torch.Size,
) -> Tensor:
    """Gradient of x; ``x`` and the result ``y`` are absent for ``sum`` and ``mean``."""
    g = _spread(grad, dims, keepdim)
    if x is None or y is None:
        count = math.prod(shape[d] for d in dims) if kind == "mean" else 1
        return (g / count).expand(shape)
    if kind == "var":
        return _of_variance(g, x, dims, correction)
    result = _spread(y, dims, keepdim)
    if kind == "norm":
        return x * (g / result).masked_fill(result == 0, 0.0)
    wanted = x.abs() if kind == "inf_norm" else x
    ties = wanted.to(result.dtype) == result
    share = g / ties.sum(dims, keepdim=True)
    # As in PyTorch, a NaN that is the maximum makes the gradient NaN, one that is the norm does not.
    return torch.where(ties, share, 0.0) * x.sign() if kind == "inf_norm" else share * ties


def _of_variance(g: Tensor, x: Tensor, dims: list[int], correction: float) -> Tensor:
    mean = torch.ops.titan.reduce(x, "mean", dims, True, 0.0, compute_dtype(x.dtype))
    freedom = reduced_size(x, dims) - correction
    return (x - mean) * (g * (2.0 / freedom if freedom > 0.0 else math.inf))


def backward_var_mean(
    dvar: Tensor | None,
    dmean: Tensor | None,
    x: Tensor,
    dims: list[int],
    keepdim: bool,
    correction: float,
) -> Tensor | None:
    """Gradient of x."""
    parts = []
    if dvar is not None:
        parts.append(_of_variance(_spread(dvar, dims, keepdim), x, dims, correction))
    if dmean is not None:
        parts.append((_spread(dmean, dims, keepdim) / reduced_size(x, dims)).expand(x.shape))
    return sum(parts[1:], parts[0]) if parts else None
