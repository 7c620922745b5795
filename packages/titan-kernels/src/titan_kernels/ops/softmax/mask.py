"""Masks as kernels read them: where they are, without copies for the dimensions they are broadcast over."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["MaskRows", "mask_rows"]

_DIMENSIONS = 3


@dataclass(frozen=True)
class MaskRows:
    """The row of a mask that belongs to each row of the scores.

    Rows are numbered over three dimensions, the last one fastest.

    Attributes:
        values: uint8 (not 0: keep) or addends, adjacent along the keys.
        sizes: Of the last two dimensions.
        strides: In elements, of all three; 0 where the mask is broadcast.
    """

    values: Tensor
    sizes: tuple[int, int]
    strides: tuple[int, int, int]

    def vectors(self, columns: int, width: int) -> bool:
        """Whether ``width`` elements from any multiple of it in any row can be read at once."""
        size = min(16, width * self.values.element_size())
        return (
            columns % width == 0
            and all(stride % width == 0 for stride in self.strides)
            and self.values.data_ptr() % size == 0
        )


def mask_rows(mask: Tensor, x: Tensor) -> MaskRows | None:
    """The rows of a mask that can be broadcast to ``x``.

    Returns:
        ``None`` where the mask is broadcast in more alternation than three dimensions can describe.
    """
    values = _adjacent(mask, x.shape[-1])
    merged = _merge(x.shape[:-1], values.expand(x.shape).stride()[:-1])
    if len(merged) > _DIMENSIONS:
        return None
    padded = [(1, 0)] * (_DIMENSIONS - len(merged)) + merged
    (_, outer), (middle_size, middle), (inner_size, inner) = padded
    return MaskRows(values, (middle_size, inner_size), (outer, middle, inner))


def _adjacent(mask: Tensor, columns: int) -> Tensor:
    """The mask with keys next to each other, booleans as bytes."""
    mask = mask.view(1) if mask.dim() == 0 else mask
    wide = mask.expand(*mask.shape[:-1], columns)
    if columns > 1 and wide.stride(-1) != 1:
        wide = wide.contiguous()
    return wide.view(torch.uint8) if wide.dtype == torch.bool else wide


def _merge(sizes: torch.Size, strides: tuple[int, ...]) -> list[tuple[int, int]]:
    """Sizes and strides with those dimensions joined that one stride describes."""
    merged: list[tuple[int, int]] = []
    for size, stride in zip(sizes, strides, strict=True):
        if size == 1:
            continue
        if merged and merged[-1][1] == stride * size:
            merged[-1] = merged[-1][0] * size, stride
        else:
            merged.append((size, stride))
    return merged
