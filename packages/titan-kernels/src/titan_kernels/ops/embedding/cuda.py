"""Launches of the CUDA kernels of this room."""

from __future__ import annotations

import torch
from torch import Tensor

from titan_kernels.launch import launch
from titan_kernels.numerics import compute_dtype
from titan_kernels.ops.embedding.segments import TILE, Segments
from titan_kernels.platforms import cuda_ready, suffix
from titan_kernels.registry import Verdict, no
from titan_kernels.rows import as_rows, transposed_stride

__all__ = ["embedding", "embedding_backward", "supports", "supports_backward"]

_UNIT = "embedding"
_VECTOR = 16  # bytes
_WARP = 32
_MOST_THREADS = 256
_FORWARD_WARPS = 4
_TABLE_ROWS = 8  # of a block of the gradient; as in kernel.cu
_MOST_POSITIONS = 2**31 - 1 - TILE  # the kernel adds a tile to the last one


def supports(indices: Tensor, weight: Tensor, padding: int, scale: float) -> Verdict:
    """Whether :func:`embedding` serves the call."""
    return cuda_ready(indices, weight)


def supports_backward(
    grad: Tensor, indices: Tensor, rows: int, padding: int, scale: float, fp32: bool
) -> Verdict:
    """Whether :func:`embedding_backward` serves the call."""
    if indices.numel() > _MOST_POSITIONS:
        return no(f"{indices.numel()} positions are more than {_MOST_POSITIONS}")
    return cuda_ready(grad, indices)


def _group(columns: int, dtype: torch.dtype) -> int:
    """Columns that a block works on: a vector per thread of the largest block, at most all."""
    return min(columns, _MOST_THREADS * _VECTOR // dtype.itemsize)


def _threads(group: int, dtype: torch.dtype) -> int:
    vectors = -(-group * dtype.itemsize // _VECTOR)
    return -(-vectors // _WARP) * _WARP


def _row_bytes(group: int, dtype: torch.dtype, itemsize: int) -> int:
    """Shared memory of a transposed row."""
    return _VECTOR // dtype.itemsize * transposed_stride(group, dtype) * itemsize


def embedding(indices: Tensor, weight: Tensor, padding: int, scale: float) -> Tensor:
    """Rows of the table, times ``scale``."""
    out = weight.new_empty((*indices.shape, weight.shape[1]))
    if out.numel() == 0:
        return out
    columns, dtype = weight.shape[1], weight.dtype
    group = _group(columns, dtype)
    launch(
        _UNIT,
        f"embedding_forward_{suffix(dtype)}",
        (-(-indices.numel() // _FORWARD_WARPS), -(-columns // group), 1),
        _WARP * _FORWARD_WARPS,
        (indices.contiguous(), weight.contiguous(), out, indices.numel(), weight.shape[0], columns, group,
         transposed_stride(group, dtype), scale),
        shared=_FORWARD_WARPS * _row_bytes(group, dtype, dtype.itemsize),
    )  # fmt: skip
    return out


def embedding_backward(
    grad: Tensor, indices: Tensor, rows: int, padding: int, scale: float, fp32: bool
) -> Tensor:
    """Gradient of the table: pieces of the long segments, then every row."""
    columns, dtype = grad.shape[-1], grad.dtype
    out = grad.new_empty((rows, columns), dtype=compute_dtype(dtype) if fp32 else dtype)
    if out.numel() == 0 or grad.numel() == 0:
        return out.zero_()
    dy, segments = as_rows(grad), Segments.of(indices, rows)
    pieces = segments.new_pieces(columns)
    group = _group(columns, dtype)
    groups, threads, stride = -(-columns // group), _threads(group, dtype), transposed_stride(group, dtype)
    sums, ordered, starts = _row_bytes(group, dtype, 4), segments.order, segments.starts
    launch(
        _UNIT,
        f"embedding_pieces_{suffix(dtype)}",
        (segments.tiles, groups, 1),
        threads,
        (dy, segments.sorted, ordered, starts, pieces, indices.numel(), rows, padding, columns, group, stride,
         TILE),
        shared=sums + 4 * TILE,
    )  # fmt: skip
    launch(
        _UNIT,
        f"embedding_gradient_{suffix(dtype)}_{suffix(out.dtype)}",
        (-(-rows // _TABLE_ROWS), groups, 1),
        threads,
        (dy, ordered, starts, pieces, out, rows, padding, columns, group, stride, TILE, scale),
        shared=sums + 4 * TILE * _TABLE_ROWS,
    )
    return out
