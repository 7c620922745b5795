"""The least memory traffic of this room's operators."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

__all__ = ["backward_bytes", "forward_bytes"]


def _visible(x: Tensor, diagonal: int | None) -> int:
    """Elements that the causal mask lets through."""
    if diagonal is None:
        return x.numel()
    queries, keys = x.shape[-2:]
    return math.prod(x.shape[:-2]) * sum(max(0, min(keys, i + diagonal + 1)) for i in range(queries))


def forward_bytes(args: tuple[Any, ...], y: Tensor) -> int:
    """Visible scores and the mask are read once, the result is written once."""
    x: Tensor = args[0]
    mask: Tensor | None = args[1]
    diagonal: int | None = args[3]
    masked = 0 if mask is None else mask.numel() * mask.dtype.itemsize
    return _visible(x, diagonal) * x.dtype.itemsize + masked + y.numel() * y.dtype.itemsize


def backward_bytes(args: tuple[Any, ...], dx: Tensor) -> int:
    """Visible probabilities and their gradients are read once, the result is written once."""
    y: Tensor = args[1]
    return 2 * _visible(y, args[3]) * y.dtype.itemsize + dx.numel() * dx.dtype.itemsize
