"""Embedding in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from titan_kernels.numerics import compute_dtype

__all__ = ["embedding", "embedding_backward"]


def embedding(indices: Tensor, weight: Tensor, padding: int, scale: float) -> Tensor:
    """See :func:`titan_kernels.ops.embedding`; ``padding`` concerns the backward only."""
    _check_range(indices, weight.shape[0])
    return _times(F.embedding(indices, weight), scale).to(weight.dtype)


def _check_range(indices: Tensor, rows: int) -> None:
    """Only where it costs no synchronisation."""
    if indices.device.type != "cpu":
        return
    wrong = indices[(indices < 0) | (indices >= rows)]
    if wrong.numel():
        raise IndexError(f"indices ({int(wrong[0])}): they must be rows of the table, from 0 to {rows - 1}")


def _times(x: Tensor, scale: float) -> Tensor:
    return x if scale == 1.0 else x.to(compute_dtype(x.dtype)) * scale


def embedding_backward(
    grad: Tensor, indices: Tensor, rows: int, padding: int, scale: float, fp32: bool
) -> Tensor:
    """Gradient of the table; PyTorch's own sums are deterministic too."""
    wide = grad.to(compute_dtype(grad.dtype))
    table = torch.ops.aten.embedding_dense_backward(wide, indices, rows, padding, False)
    return _times(table, scale).to(wide.dtype if fp32 else grad.dtype)
