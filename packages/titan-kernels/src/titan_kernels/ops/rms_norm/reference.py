"""Root mean square normalisation in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor

from titan_kernels.numerics import compute_dtype

__all__ = ["add_rms_norm", "rms_norm", "rms_norm_backward"]


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """See :func:`titan_kernels.ops.rms_norm`; also returns 1 / RMS per row."""
    wide = x.to(compute_dtype(x.dtype))
    rstd = torch.rsqrt(wide.square().mean(-1) + eps)
    y = wide * rstd.unsqueeze(-1)
    if weight is not None:
        y = y * weight.to(wide.dtype)
    return y.to(x.dtype), rstd


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The sum is rounded to the dtype of ``x`` before it is normalised, as two separate calls would do."""
    total = x + residual
    y, rstd = rms_norm(total, weight, eps)
    return y, total, rstd


def rms_norm_backward(
    dy: Tensor, x: Tensor, weight: Tensor | None, rstd: Tensor, dsum: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Gradients of the normalised tensor (plus ``dsum``, its gradient by other ways) and of the weight."""
    wide, scale = compute_dtype(x.dtype), rstd.unsqueeze(-1)
    xhat = x.to(wide) * scale
    grad = dy.to(wide)
    dx = grad if weight is None else grad * weight.to(wide)
    dx = scale * (dx - xhat * (dx * xhat).mean(-1, keepdim=True))
    if dsum is not None:
        dx = dx + dsum.to(wide)
    if weight is None:
        return dx.to(x.dtype), x.new_empty(0)
    dweight = (grad * xhat).unsqueeze(0).flatten(0, -2).sum(0)
    return dx.to(x.dtype), dweight.to(weight.dtype)
