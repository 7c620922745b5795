"""Layer normalisation in plain PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

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
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of the normalised tensor (plus ``dsum``, its gradient by other ways) and the parameters.

    ``output_mask`` says which of the three are wanted.
    """
    wide = compute_dtype(x.dtype)
    mean, rstd = statistics[..., :1], statistics[..., 1:]
    xhat, grad = (x.to(wide) - mean) * rstd, dy.to(wide)
    dx = None
    if output_mask[0]:
        g = grad if weight is None else grad * weight.to(wide)
        wide_dx = rstd * (g - g.mean(-1, keepdim=True) - xhat * (g * xhat).mean(-1, keepdim=True))
        dx = (wide_dx if dsum is None else wide_dx + dsum.to(wide)).to(x.dtype)
    dweight = _sum_rows(grad * xhat).to(weight.dtype) if output_mask[1] and weight is not None else None
    dbias = _sum_rows(grad).to(bias.dtype) if output_mask[2] and bias is not None else None
    return dx, dweight, dbias


def _sum_rows(values: Tensor) -> Tensor:
    return values.unsqueeze(0).flatten(0, -2).sum(0)
