"""A Triton kernel for all reductions: each program reduces a segment, PyTorch merges the segments."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from titan_kernels.ops.reduce.collapse import Collapsed, collapse, reduced_size
from titan_kernels.ops.reduce.kinds import KINDS, divisor

__all__ = ["reduce", "var_mean"]

_TILE = 2048
_MOST_COLUMNS = 64
_SHORTEST_SEGMENT = 8192
_MOST_PROGRAMS = 1024


@triton.jit
def _largest(v, inside):  # type: ignore[no-untyped-def]
    """Over the tile's lines; a NaN wins."""
    top = tl.max(tl.where(inside & (v == v), v, float("-inf")), 0)
    strange = tl.max((inside & (v != v)).to(tl.int32), 0)
    return tl.where(strange > 0, float("nan"), top)


@triton.jit
def _segment_kernel(  # type: ignore[no-untyped-def]
    x, pivots, records, plane, outers, reduced, inner, segment, segments,
    ACCUMULATOR: tl.constexpr, TRANSFORM: tl.constexpr, LINES: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    across = tl.cdiv(inner, COLUMNS)
    program = tl.program_id(0).to(tl.int64) // across
    outer, first = program // segments, (program % segments) * segment
    column = tl.program_id(0) % across * COLUMNS + tl.arange(0, COLUMNS)
    start = x + outer * reduced * inner + column[None, :]
    a = tl.zeros((COLUMNS,), tl.float32)
    squares, count, pivot = a, a, a
    if ACCUMULATOR == "moments":
        pivot = tl.load(pivots + outer % outers * inner + column, mask=column < inner, other=0.0)
    if ACCUMULATOR == "largest":
        a += float("-inf")
    for begin in range(first, min(first + segment, reduced), LINES):
        line = begin + tl.arange(0, LINES)
        inside = ((line < first + segment) & (line < reduced))[:, None] & (column < inner)[None, :]
        v = tl.load(start + line[:, None].to(tl.int64) * inner, mask=inside, other=0.0).to(tl.float32)
        if TRANSFORM == 1:
            v *= v
        if TRANSFORM == 2:
            v = tl.abs(v)
        if ACCUMULATOR == "largest":
            top = _largest(v, inside)
            a = tl.where((a > top) | (a != a), a, top)
        if ACCUMULATOR == "total":
            a += tl.sum(v, 0)
        if ACCUMULATOR == "moments":
            v = tl.where(inside, v - pivot[None, :], 0.0)
            here = tl.sum(inside.to(tl.float32), 0)
            mean = tl.sum(v, 0) / tl.maximum(here, 1.0)
            off = tl.where(inside, v - mean[None, :], 0.0)
            delta, total = mean - a, count + here
            share = here / tl.maximum(total, 1.0)
            squares += tl.sum(off * off, 0) + (delta * count) * (delta * share)
            a += delta * share
            count = total
    at = records + program * inner + column
    tl.store(at, a, mask=column < inner)
    if ACCUMULATOR == "moments":
        tl.store(at + plane, squares, mask=column < inner)
        tl.store(at + 2 * plane, count, mask=column < inner)


def reduce(
    x: Tensor, kind: str, dims: Sequence[int], keepdim: bool, correction: float, dtype: torch.dtype | None
) -> Tensor:
    """One result."""
    if kind == "var":
        return var_mean(x, dims, keepdim, correction, dtype)[0]
    whole, way = collapse(x, dims), KINDS[kind]
    (records,) = _records(whole, way.accumulator, way.transform)
    merged = records.amax((0, 2)) if way.accumulator == "largest" else records.sum((0, 2))
    out = merged / divisor(kind, reduced_size(x, dims), correction)
    out = (out.sqrt() if way.root else out).to(dtype or x.dtype)
    return whole.restore(out, x, dims, keepdim)


def var_mean(
    x: Tensor, dims: Sequence[int], keepdim: bool, correction: float, dtype: torch.dtype | None
) -> tuple[Tensor, Tensor]:
    """Both results in one pass."""
    whole = collapse(x, dims)
    pivots = _pivots(whole)
    means, squares, counts = _records(whole, "moments", 0)
    n = reduced_size(x, dims)
    mean = (means * counts).sum((0, 2), keepdim=True) / n
    total = (squares + (means - mean).square() * counts).sum((0, 2))
    variance = total / divisor("var", n, correction)
    results = (each.to(dtype or x.dtype) for each in (variance, mean[0, :, 0] + pivots))
    first, second = (whole.restore(each.contiguous(), x, dims, keepdim) for each in results)
    return first, second


def _pivots(whole: Collapsed) -> Tensor:
    """An element for each result, fp32; variances are summed about it: a large mean costs no digits."""
    return whole.x[0, :, 0].float().contiguous()


def _records(whole: Collapsed, accumulator: str, transform: int) -> Tensor:
    """(planes, lead, outer, segments, inner), fp32; means are less the pivots."""
    lead, outer, reduced, inner = whole.x.shape
    columns = min(triton.next_power_of_2(max(inner, 1)), _MOST_COLUMNS)
    across = triton.cdiv(inner, columns)
    most = max(1, _MOST_PROGRAMS // max(lead * outer * across, 1))
    segments = max(1, min(reduced * columns // _SHORTEST_SEGMENT, most))
    segment = triton.cdiv(reduced, segments)
    segments = triton.cdiv(reduced, segment)
    planes = 3 if accumulator == "moments" else 1
    records = whole.x.new_empty((planes, lead, outer, segments, inner), dtype=torch.float32)
    if whole.x.numel():
        # In one dimension: the others end at 65535.
        _segment_kernel[(lead * outer * segments * across,)](
            whole.x, _pivots(whole), records, records[0].numel(), outer, reduced, inner, segment, segments,
            accumulator, transform, max(1, _TILE // columns), columns,
        )  # fmt: skip
    return records
