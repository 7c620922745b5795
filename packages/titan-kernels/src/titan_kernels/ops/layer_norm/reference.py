"""Layer normalisation in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor

from titan_kernels.numerics import compute_dtype

__all__ = ["add_layer_norm", "layer_norm", "layer_norm_backward"]


def layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """See :func:`titan_kernels.ops.layer_norm`; also returns statistics (..., 2): mean and 1 / deviation."""
    wide = x.to(compute_dtype(x.dtype))
    mean = wide.mean(-1, keepdim=True)
    centred = wide - mean
    rstd = (centred.square().mean(-1, keepdim=True) + eps).rsqrt()
    y = centred * rstd
    if weight is not None:
        y = y * weight.to(wide.dtype)
    if bias is not None:
        y = y + bias.to(wide.dtype)
    return y.to(x.dtype), torch.cat((mean, rstd), -1)


def add_layer_norm(
    x: Tensor, residual: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The sum is rounded to the dtype of ``x`` before it is normalised, as two separate calls would do."""
    total = x + residual
    y, statistics = layer_norm(total, weight, bias, eps)
    return y, total, statistics


def layer_norm_backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    statistics: Tensor,
    dsum: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the normalised tensor (plus ``dsum``, its gradient by other ways) and the parameters."""
    wide = compute_dtype(x.dtype)
    mean, rstd = statistics[..., :1], statistics[..., 1:]
    xhat = (x.to(wide) - mean) * rstd
    grad = dy.to(wide)
    g = grad if weight is None else grad * weight.to(wide)
    dx = rstd * (g - g.mean(-1, keepdim=True) - xhat * (g * xhat).mean(-1, keepdim=True))
    if dsum is not None:
        dx = dx + dsum.to(wide)
    dweight = x.new_empty(0) if weight is None else _sum_rows(grad * xhat).to(weight.dtype)
    dbias = x.new_empty(0) if bias is None else _sum_rows(grad).to(bias.dtype)
    return dx.to(x.dtype), dweight, dbias


def _sum_rows(values: Tensor) -> Tensor:
    return values.unsqueeze(0).flatten(0, -2).sum(0)
