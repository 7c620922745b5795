"""Root mean square normalisation in plain PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

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
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    rstd: Tensor,
    dsum: Tensor | None,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of the normalised tensor (plus ``dsum``, its gradient by other ways) and of the weight.

    ``output_mask`` says which of the two are wanted.
    """
    wide, scale = compute_dtype(x.dtype), rstd.unsqueeze(-1)
    xhat, grad = x.to(wide) * scale, dy.to(wide)
    dx = dweight = None
    if output_mask[0]:
        g = grad if weight is None else grad * weight.to(wide)
        wide_dx = scale * (g - xhat * (g * xhat).mean(-1, keepdim=True))
        dx = (wide_dx if dsum is None else wide_dx + dsum.to(wide)).to(x.dtype)
    if output_mask[1] and weight is not None:
        dweight = (grad * xhat).unsqueeze(0).flatten(0, -2).sum(0).to(weight.dtype)
    return dx, dweight
