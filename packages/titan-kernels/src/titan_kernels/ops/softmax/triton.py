"""Triton kernels of this room: one program per row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from titan_kernels.ops.softmax.mask import mask_rows
from titan_kernels.rows import as_rows

__all__ = ["softmax", "softmax_backward"]


@triton.jit
def _forward_kernel(  # type: ignore[no-untyped-def]
    x, mask, y, n, queries, diagonal, scale, size1, size2, stride0, stride1, stride2,
    CAUSAL: tl.constexpr, KEEP: tl.constexpr, ADD: tl.constexpr, ZERO: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    visible = at < n
    if CAUSAL:
        visible = visible & (at <= row % queries + diagonal)
    scores = tl.load(x + row * n + at, mask=visible, other=0.0).to(tl.float32) * scale
    if KEEP or ADD:
        outer = row // size2
        mask += outer // size1 * stride0 + outer % size1 * stride1 + row % size2 * stride2
        values = tl.load(mask + at, mask=visible, other=0)
        if KEEP:
            visible = visible & (values != 0)
        else:
            scores += values.to(tl.float32)
    scores = tl.where(visible, scores, float("-inf"))
    largest = tl.max(scores, 0)
    if ZERO:
        largest = tl.where(largest == float("-inf"), 0.0, largest)
    weights = tl.exp(scores - largest)
    total = tl.sum(weights, 0)
    if ZERO:
        total = tl.where(total == 0.0, 1.0, total)
    tl.store(y + row * n + at, (weights / total).to(y.dtype.element_ty), mask=at < n)


@triton.jit
def _backward_kernel(  # type: ignore[no-untyped-def]
    dy, y, dx, n, queries, diagonal, scale, CAUSAL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    visible = at < n
    if CAUSAL:
        visible = visible & (at <= row % queries + diagonal)
    grad = tl.load(dy + row * n + at, mask=visible, other=0.0).to(tl.float32)
    weights = tl.load(y + row * n + at, mask=visible, other=0.0).to(tl.float32)
    out = scale * (weights * (grad - tl.sum(grad * weights, 0)))
    tl.store(dx + row * n + at, out.to(dx.dtype.element_ty), mask=at < n)


def softmax(
    x: Tensor,
    mask: Tensor | None,
    scale: float,
    diagonal: int | None,
    zero_masked: bool,
    dtype: torch.dtype | None,
) -> Tensor:
    """Forward."""
    rows = as_rows(x)
    y = torch.empty_like(rows, dtype=dtype)
    if rows.numel():
        place = None if mask is None else mask_rows(mask, x)
        values, sizes, strides = (
            (rows, (1, 1), (0, 0, 0)) if place is None else (place.values, place.sizes, place.strides)
        )
        keep = mask is not None and mask.dtype == torch.bool
        _forward_kernel[(rows.shape[0],)](
            rows, values, y, rows.shape[1], *_causal(x, diagonal), scale, *sizes, *strides,
            diagonal is not None, keep, mask is not None and not keep, zero_masked, **_shape(rows),
        )  # fmt: skip
    return y.view(x.shape)


def softmax_backward(
    dy: Tensor, y: Tensor, scale: float, diagonal: int | None, dtype: torch.dtype | None
) -> Tensor:
    """Backward."""
    rows, grad = as_rows(y), as_rows(dy)
    dx = torch.empty_like(rows, dtype=dtype)
    if rows.numel():
        _backward_kernel[(rows.shape[0],)](
            grad, rows, dx, rows.shape[1], *_causal(y, diagonal), scale, diagonal is not None, **_shape(rows)
        )
    return dx.view(y.shape)


def _causal(x: Tensor, diagonal: int | None) -> tuple[int, int]:
    return (1, 0) if diagonal is None else (x.shape[-2], diagonal)


def _shape(rows: Tensor) -> dict[str, int]:
    block = triton.next_power_of_2(rows.shape[1])
    return {"BLOCK": block, "num_warps": min(16, max(1, block // 512))}
