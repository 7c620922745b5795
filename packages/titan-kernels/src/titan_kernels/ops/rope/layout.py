"""How the tensors of this room lie in memory."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["like", "position_table"]


def like(x: Tensor) -> Tensor:
    """An empty tensor for a result: dense, in the order of T and H that ``x`` (B, T, H, D) has in memory."""
    b, t, h, d = x.shape
    if x.stride(1) < x.stride(2):
        return x.new_empty_strided((b, t, h, d), (h * t * d, d, t * d, 1))
    return x.new_empty((b, t, h, d))


def position_table(positions: Tensor, x: Tensor) -> Tensor:
    """Positions as int64 of (B, T), without a copy where they are int64."""
    return positions.to(torch.int64).expand(x.shape[0], x.shape[1])
