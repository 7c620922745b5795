"""Geometry of element-wise kernels; see ``include/titan/flat.cuh``."""

from __future__ import annotations

import torch

from titan_kernels.platforms import multiprocessors

__all__ = ["FLAT_THREADS", "flat_grid"]

FLAT_THREADS = 256
_THREADS_PER_MULTIPROCESSOR = 2048
_ACCESS = 16


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
