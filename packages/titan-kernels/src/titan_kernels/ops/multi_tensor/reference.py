"""Passes over lists of tensors in plain PyTorch: one tensor after the other."""

from __future__ import annotations

import torch
from torch import Tensor

from titan_kernels.numerics import compute_dtype

__all__ = ["multi_tensor_cast", "multi_tensor_norm"]


def multi_tensor_norm(tensors: list[Tensor], per_tensor: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """See :func:`titan_kernels.ops.multi_tensor_norm`; the last result is there if asked for."""
    squares = torch.stack([x.to(compute_dtype(x.dtype)).square().sum() for x in tensors])
    finite = torch.stack([torch.isfinite(x).all() for x in tensors])
    norm = squares.sum().sqrt().float()
    found = finite.logical_not().any().float()
    return norm, found, squares.sqrt().float() if per_tensor else None


def multi_tensor_cast(
    sources: list[Tensor], targets: list[Tensor], scale: Tensor | None, factor: float
) -> None:
    """See :func:`titan_kernels.ops.multi_tensor_cast`; ``factor`` and ``scale`` are multiplied."""
    whole = factor if scale is None else scale * factor
    for source, target in zip(sources, targets, strict=True):
        target.copy_(source.to(compute_dtype(source.dtype)) * whole)
