"""Sums of columns: the last step of gradients over rows; see ``include/titan/column_sum.cuh``."""

from __future__ import annotations

import torch
from torch import Tensor

from titan_kernels.launch import launch
from titan_kernels.platforms import suffix

__all__ = ["column_sum"]

_COLUMNS_OF_A_BLOCK = 32
_THREADS = 256


def column_sum(unit: str, partial: Tensor | None, like: Tensor | None) -> Tensor | None:
    """Add up the rows of ``partial`` in a fixed order, with the kernel ``<unit>_column_sum_<dtype>``.

    Args:
        unit: The op whose ``kernel.cu`` holds the kernel.
        partial: (count, columns), fp32, contiguous; none where the gradient is not wanted.
        like: (columns), the parameter; the result has its dtype.
    """
    if partial is None or like is None:
        return None
    out = torch.empty_like(like, memory_format=torch.contiguous_format)
    count, columns = partial.shape
    launch(
        unit,
        f"{unit}_column_sum_{suffix(like.dtype)}",
        -(-columns // _COLUMNS_OF_A_BLOCK),
        _THREADS,
        (partial, out, count, columns),
    )
    return out
