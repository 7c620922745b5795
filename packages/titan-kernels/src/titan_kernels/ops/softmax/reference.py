"""Softmax in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor

from titan_kernels.numerics import compute_dtype

__all__ = ["softmax", "softmax_backward"]


def softmax(
    x: Tensor,
    mask: Tensor | None,
    scale: float,
    diagonal: int | None,
    zero_masked: bool,
    dtype: torch.dtype | None,
) -> Tensor:
    """See :func:`titan_kernels.ops.softmax`; query i sees keys up to i + ``diagonal``."""
    scores = x.to(compute_dtype(x.dtype)) * scale
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -torch.inf)
    elif mask is not None:
        scores = scores + mask.to(scores.dtype)
    if diagonal is not None:
        visible = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).tril(diagonal)
        scores = scores.masked_fill(~visible, -torch.inf)
    y = torch.softmax(scores, -1)
    if zero_masked:
        y = y.masked_fill((scores == -torch.inf).all(-1, keepdim=True), 0.0)
    return y.to(x.dtype if dtype is None else dtype)


def softmax_backward(
    dy: Tensor, y: Tensor, scale: float, diagonal: int | None, dtype: torch.dtype | None
) -> Tensor:
    """Gradient of x; what the diagonal hides takes no part."""
    grad, probability = (each.to(compute_dtype(y.dtype)) for each in (dy, y))
    if diagonal is not None:
        grad, probability = grad.tril(diagonal), probability.tril(diagonal)
    dot = (grad * probability).sum(-1, keepdim=True)
    return (scale * probability * (grad - dot)).to(y.dtype if dtype is None else dtype)
