"""Geometry of element-wise kernels; see ``include/titan/flat.cuh``."""

from __future__ import annotations

import torch

from titan_kernels.platforms import multiprocessors

__all__ = ["FLAT_THREADS", "flat_grid", "flat_rows_geometry"]

FLAT_THREADS = 256
_THREADS_PER_MULTIPROCESSOR = 2048
_ACCESS = 16
_WARP = 32


def flat_grid(elements: int, dtype: torch.dtype, device: torch.device) -> int:
    """Blocks of :data:`FLAT_THREADS` threads for a pass over so many elements.

    Args:
        elements: Elements of the run.
        dtype: The largest dtype of the pass; its elements go 16 bytes at a time.
        device: Where it runs; at most as many blocks as fill it, each of which loops.
    """
    blocks = -(-elements * dtype.itemsize // (_ACCESS * FLAT_THREADS))
    resident = multiprocessors(device) * (_THREADS_PER_MULTIPROCESSOR // FLAT_THREADS)
    return min(blocks, resident)


def flat_rows_geometry(
    rows: int, columns: int, dtype: torch.dtype, device: torch.device
) -> tuple[tuple[int, int, int], int]:
    """Grid and block of a pass over rows: x shares the elements of a row, y the rows.

    Args:
        rows: Rows; one for contiguous tensors.
        columns: Elements of each.
        dtype: The largest dtype of the pass.
        device: Where it runs; at most as many blocks as fill it.
    """
    vectors = -(-columns * dtype.itemsize // _ACCESS)
    across = -(-vectors // FLAT_THREADS)
    if across == 0:
        return (0, rows, 1), FLAT_THREADS
    block = -(-vectors // (across * _WARP)) * _WARP
    resident = multiprocessors(device) * (_THREADS_PER_MULTIPROCESSOR // block)
    return (min(across, resident), min(rows, max(1, resident // across)), 1), block
