"""Tensors as rows, for kernels that work along the last dimension; see ``include/titan/row.cuh``."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["SHARED_LIMIT", "as_rows", "transposed_stride"]

# Dynamic shared memory that a block gets on every card of the package: 64 KB, less the static part.
SHARED_LIMIT = 64 * 1024 - 1024
_ALIGNMENT = 16
_WARP = 32


def as_rows(x: Tensor) -> Tensor:
    """``x`` as (rows, columns), contiguous, starting at a multiple of 16 bytes; a copy only where needed.

    Kernels that read several tensors at once count on a common alignment of their rows.
    """
    rows = (x.flatten(0, -2) if x.dim() > 1 else x.unsqueeze(0)).contiguous()
    return rows.clone() if rows.data_ptr() % _ALIGNMENT else rows


def transposed_stride(columns: int, dtype: torch.dtype) -> int:
    """The column stride of a ``TransposedRow`` (row.cuh) for rows of this dtype.

    Threads that walk a transposed row element by element touch WIDTH columns at once; a stride of
    32 / WIDTH modulo 32 puts them into different banks.
    """
    width = _ALIGNMENT // dtype.itemsize
    offset = _WARP // width
    return -(-(columns // width + 1 - offset) // _WARP) * _WARP + offset
