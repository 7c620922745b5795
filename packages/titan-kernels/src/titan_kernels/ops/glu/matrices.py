"""Tensors as matrices of contiguous rows with a stride, for all kernels of this room."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["gradients", "halves", "matrix", "one_row_if_contiguous"]


def matrix(x: Tensor) -> Tensor:
    """``x`` as (rows, columns) with contiguous rows; a copy only where no strides can say it."""
    rows = x.flatten(0, -2) if x.dim() > 1 else x.unsqueeze(0)
    return rows if rows.stride(1) == 1 or rows.shape[1] == 1 else rows.contiguous()


def halves(gate: Tensor, up: Tensor | None) -> tuple[Tensor, Tensor]:
    """Gate and up as matrices; without ``up`` they are the halves of ``gate``."""
    if up is not None:
        return matrix(gate), matrix(up)
    first, second = matrix(gate).chunk(2, dim=1)
    return first, second


def one_row_if_contiguous(*matrices: Tensor) -> tuple[Tensor, ...]:
    """The same matrices, as single rows where all of them are contiguous."""
    contiguous = all(each.is_contiguous() for each in matrices)
    return tuple(each.view(1, -1) for each in matrices) if contiguous else matrices


def gradients(
    gate: Tensor, up: Tensor | None, output_mask: Sequence[bool]
) -> tuple[tuple[Tensor | None, ...], tuple[Tensor | None, ...]]:
    """Memory for the gradients that are wanted: as the backward returns them, and of gate and up.

    They lie in contiguous tensors shaped like ``gate``, so ``gate.shape[-1]`` is the stride of their rows.
    """
    whole = tuple(
        torch.empty_like(gate, memory_format=torch.contiguous_format) if wanted else None
        for wanted in output_mask
    )
    packed = whole[0] if up is None else None
    return whole, whole if packed is None else halves(packed, None)
