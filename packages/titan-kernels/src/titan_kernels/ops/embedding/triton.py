"""Triton kernels of this room: one program per row, or piece of a long segment, and block of columns."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from titan_kernels.numerics import compute_dtype
from titan_kernels.ops.embedding.segments import TILE, Segments
from titan_kernels.rows import as_rows

__all__ = ["embedding", "embedding_backward"]

_MOST_COLUMNS = 1024


@triton.jit
def _forward_kernel(  # type: ignore[no-untyped-def]
    indices, weight, out, rows, n, scale, BLOCK: tl.constexpr
):
    position = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(indices + position)
    exists = (index >= 0) & (index < rows)
    x = tl.load(weight + index * n + at, mask=(at < n) & exists, other=0.0).to(tl.float32)
    x = tl.where(exists, x * scale, float("nan"))
    tl.store(out + position * n + at, x.to(out.dtype.element_ty), mask=at < n)


@triton.jit
def _pieces_kernel(  # type: ignore[no-untyped-def]
    grad, indices, order, starts, pieces, positions, rows, padding, n, TILE: tl.constexpr, BLOCK: tl.constexpr
):
    tile, piece = tl.program_id(0), tl.program_id(2)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tile_begin = tile * TILE
    tile_end = tl.minimum(tile_begin + TILE, positions)
    row = tl.load(indices + tl.where(piece == 0, tile_begin, tile_end - 1))
    exists = (row >= 0) & (row < rows) & (row != padding)
    begin = tl.load(starts + row, mask=exists, other=0)
    end = tl.load(starts + row + 1, mask=exists, other=0)
    if (end - begin > TILE) & ((piece == 0) | (begin > tile_begin)):
        total = tl.zeros((BLOCK,), tl.float32)
        for i in range(tl.maximum(begin, tile_begin), tl.minimum(end, tile_end)):
            total += tl.load(grad + tl.load(order + i) * n + at, mask=at < n, other=0.0).to(tl.float32)
        tl.store(pieces + (2 * tile + piece).to(tl.int64) * n + at, total, mask=at < n)


@triton.jit
def _gradient_kernel(  # type: ignore[no-untyped-def]
    grad, order, starts, pieces, out, padding, n, scale, TILE: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    begin = tl.load(starts + row)
    end = tl.where(row == padding, begin, tl.load(starts + row + 1))
    total = tl.zeros((BLOCK,), tl.float32)
    if end - begin <= TILE:
        for i in range(begin, end):
            total += tl.load(grad + tl.load(order + i) * n + at, mask=at < n, other=0.0).to(tl.float32)
    else:
        for tile in range(begin // TILE, (end - 1) // TILE + 1):
            slot = 2 * tile + tl.where(tile * TILE < begin, 1, 0)
            total += tl.load(pieces + slot.to(tl.int64) * n + at, mask=at < n, other=0.0)
    tl.store(out + row * n + at, (scale * total).to(out.dtype.element_ty), mask=at < n)


def embedding(indices: Tensor, weight: Tensor, padding: int, scale: float) -> Tensor:
    """Rows of the table, times ``scale``."""
    out = weight.new_empty((*indices.shape, weight.shape[1]))
    if out.numel():
        block, blocks = _columns(weight.shape[1])
        _forward_kernel[(indices.numel(), blocks)](
            indices.contiguous(), weight.contiguous(), out, *weight.shape, scale, block
        )
    return out


def embedding_backward(
    grad: Tensor, indices: Tensor, rows: int, padding: int, scale: float, fp32: bool
) -> Tensor:
    """Gradient of the table: pieces of the long segments, then every row."""
    n = grad.shape[-1]
    out = grad.new_empty((rows, n), dtype=compute_dtype(grad.dtype) if fp32 else grad.dtype)
    if out.numel() == 0 or grad.numel() == 0:
        return out.zero_()
    dy, segments = as_rows(grad), Segments.of(indices, rows)
    pieces = segments.new_pieces(n)
    block, blocks = _columns(n)
    _pieces_kernel[(segments.tiles, blocks, 2)](
        dy, segments.sorted, segments.order, segments.starts, pieces, indices.numel(), rows, padding, n,
        TILE, block,
    )  # fmt: skip
    _gradient_kernel[(rows, blocks)](
        dy, segments.order, segments.starts, pieces, out, padding, n, scale, TILE, block
    )
    return out


def _columns(n: int) -> tuple[int, int]:
    """Columns of a program, and programs for all columns."""
    block = min(_MOST_COLUMNS, triton.next_power_of_2(n))
    return block, triton.cdiv(n, block)
