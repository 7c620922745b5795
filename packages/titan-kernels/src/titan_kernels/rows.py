"""Tensors as rows, for kernels that work along the last dimension; see ``include/titan/row.cuh``."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from titan_kernels.platforms import multiprocessors

__all__ = ["SHARED_LIMIT", "RowPlan", "as_rows", "longest_row", "plan_rows", "row_grid", "transposed_stride"]

# Dynamic shared memory that a block gets on every card of the package: 64 KB, less the static part.
SHARED_LIMIT = 64 * 1024 - 1024
_ALIGNMENT = 16
_WARP = 32
_VECTORS_OF_A_WARP = 2
_MOST_THREADS = 512
_MOST_VECTORS = 4  # per thread


def as_rows(x: Tensor) -> Tensor:
    """``x`` as (rows, columns), contiguous, starting at a multiple of 16 bytes; a copy only where needed.

    Kernels that read several tensors at once count on a common alignment of their rows.
    """
    rows = (x.flatten(0, -2) if x.dim() > 1 else x.unsqueeze(0)).contiguous()
    return rows.clone() if rows.data_ptr() % _ALIGNMENT else rows


@dataclass(frozen=True)
class RowPlan:
    """How threads share rows.

    Args:
        variant: The part of the kernel's name: ``warp`` (a warp per row) or ``v2``, ``v4`` (a block per
            row, so many vectors per thread).
        block: Threads per block.
        rows_per_block: Rows that a block works on at the same time.
    """

    variant: str
    block: int
    rows_per_block: int


def longest_row(dtype: torch.dtype) -> int:
    """The most elements of a row that a block can hold in registers."""
    return _MOST_THREADS * _MOST_VECTORS * _ALIGNMENT // dtype.itemsize


def plan_rows(columns: int, dtype: torch.dtype) -> RowPlan:
    """The plan for rows of up to :func:`longest_row` elements."""
    vectors = -(-columns * dtype.itemsize // _ALIGNMENT)
    if vectors <= _WARP * _VECTORS_OF_A_WARP:
        return RowPlan("warp", 4 * _WARP, 4)
    per_thread = 2 if vectors <= 2 * _MOST_THREADS else _MOST_VECTORS
    return RowPlan(f"v{per_thread}", -(-vectors // (per_thread * _WARP)) * _WARP, 1)


def row_grid(rows: int, plan: RowPlan, device: torch.device, threads_per_multiprocessor: int = 1024) -> int:
    """Blocks that fill the device once; each walks over many rows.

    Args:
        rows: Rows of the call.
        plan: How threads share them.
        device: Where they are.
        threads_per_multiprocessor: Fewer for kernels that need many registers or much shared memory.
    """
    resident = multiprocessors(device) * max(1, threads_per_multiprocessor // plan.block)
    return min(-(-rows // plan.rows_per_block), resident)


def transposed_stride(columns: int, dtype: torch.dtype) -> int:
    """The column stride of a ``TransposedRow`` (row.cuh) for rows of this dtype.

    Threads that walk a transposed row element by element touch WIDTH columns at once; a stride of
    32 / WIDTH modulo 32 puts them into different banks.
    """
    width = _ALIGNMENT // dtype.itemsize
    offset = _WARP // width
    return -(-(columns // width + 1 - offset) // _WARP) * _WARP + offset
