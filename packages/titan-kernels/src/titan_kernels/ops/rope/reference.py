"""Rotary position embedding in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor

from titan_kernels.numerics import compute_dtype
from titan_kernels.ops.rope.layout import like, position_table

__all__ = ["rope", "rope_"]


def rope(
    q: Tensor,
    k: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None,
    interleaved: bool,
    inverse: bool,
) -> tuple[Tensor, Tensor | None]:
    """See :func:`titan_kernels.ops.rope_qk`, with tensors (B, T, H, D)."""

    def rotated(x: Tensor) -> Tensor:
        return like(x).copy_(_rotate(x, cos, sin, positions, interleaved, inverse))

    return rotated(q), None if k is None else rotated(k)


def rope_(
    q: Tensor,
    k: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None,
    interleaved: bool,
    inverse: bool,
) -> None:
    """The same in place."""
    for x in (q, k):
        if x is not None:
            x.copy_(_rotate(x, cos, sin, positions, interleaved, inverse))


def _rotate(
    x: Tensor, cos: Tensor, sin: Tensor, positions: Tensor | None, interleaved: bool, inverse: bool
) -> Tensor:
    wide = x.to(compute_dtype(x.dtype))
    c, s = (_rows(table, positions, x).to(wide.dtype).unsqueeze(2) for table in (cos, sin))
    s = -s if inverse else s
    pairs = cos.shape[1]
    halves = torch.unflatten(wide[..., : 2 * pairs], -1, (pairs, 2) if interleaved else (2, pairs))
    axis = -1 if interleaved else -2
    first, second = halves.unbind(axis)
    turned = torch.stack((first * c - second * s, second * c + first * s), axis).flatten(-2)
    return torch.cat((turned, wide[..., 2 * pairs :]), -1).to(x.dtype)


def _rows(table: Tensor, positions: Tensor | None, x: Tensor) -> Tensor:
    """(B or 1, T, pairs); NaN for positions outside the table, as on a GPU."""
    if positions is None:
        return table[: x.shape[1]].unsqueeze(0)
    at = position_table(positions, x)
    inside = (at >= 0) & (at < table.shape[0])
    if table.shape[0] == 0:
        return table.new_full((*at.shape, table.shape[1]), torch.nan)
    return table[at.clamp(0, table.shape[0] - 1)].where(inside.unsqueeze(-1), torch.nan)
