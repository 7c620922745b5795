"""Triton kernel of this room: one program per token and tensor."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from titan_kernels.ops.rope.layout import like, position_table

__all__ = ["rope", "rope_"]

_HEADS = 8  # at a time


@triton.jit
def _kernel(  # type: ignore[no-untyped-def]
    x, y, cos, sin, positions, times, heads, pairs, rest, rows, sign,
    x_batch, x_time, x_head, y_batch, y_time, y_head, position_batch, position_time,
    HAS_POSITIONS: tl.constexpr, INTERLEAVED: tl.constexpr,
    HEADS: tl.constexpr, PAIRS: tl.constexpr, REST: tl.constexpr,
):  # fmt: skip
    token = tl.program_id(0).to(tl.int64)
    batch = token // times
    time = token - batch * times
    position = time
    if HAS_POSITIONS:
        position = tl.load(positions + batch * position_batch + time * position_time)
    pair = tl.arange(0, PAIRS)
    # Rows outside the tables are NaN.
    inside = (pair < pairs) & (position >= 0) & (position < rows)
    c = tl.load(cos + position * pairs + pair, mask=inside, other=float("nan")).to(tl.float32)[None, :]
    s = tl.load(sin + position * pairs + pair, mask=inside, other=float("nan")).to(tl.float32)[None, :] * sign
    if INTERLEAVED:
        first, second = 2 * pair[None, :], 2 * pair[None, :] + 1
    else:
        first, second = pair[None, :], pair[None, :] + pairs
    tail = tl.arange(0, REST)[None, :]
    for begin in range(0, heads, HEADS):
        head = (begin + tl.arange(0, HEADS))[:, None]
        source = x + batch * x_batch + time * x_time + head.to(tl.int64) * x_head
        target = y + batch * y_batch + time * y_time + head.to(tl.int64) * y_head
        mask = (head < heads) & (pair[None, :] < pairs)
        a = tl.load(source + first, mask=mask, other=0.0).to(tl.float32)
        b = tl.load(source + second, mask=mask, other=0.0).to(tl.float32)
        tl.store(target + first, (a * c - b * s).to(y.dtype.element_ty), mask=mask)
        tl.store(target + second, (b * c + a * s).to(y.dtype.element_ty), mask=mask)
        mask = (head < heads) & (tail < rest)
        tl.store(target + 2 * pairs + tail, tl.load(source + 2 * pairs + tail, mask=mask), mask=mask)


def rope(q: Tensor, k: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor | None]:
    """Out of place."""
    targets = [like(x) for x in (q, k) if x is not None]
    for x, y in zip((q, k), targets, strict=False):
        if x is not None:
            _rotate(x if x.stride(3) == 1 else x.contiguous(), y, *rest)
    return targets[0], None if k is None else targets[1]


def rope_(q: Tensor, k: Tensor | None, *rest: Any) -> None:
    """In place."""
    for x in (q, k):
        if x is not None:
            _rotate(x, x, *rest)


def _rotate(
    x: Tensor,
    y: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None,
    interleaved: bool,
    inverse: bool,
) -> None:
    batches, times, heads, d = x.shape
    if x.numel() == 0:
        return
    rows, pairs = cos.shape
    rest = 0 if x is y else d - 2 * pairs
    at = None if positions is None else position_table(positions, x)
    _kernel[(batches * times,)](
        x, y, cos.contiguous(), sin.contiguous(), cos if at is None else at,
        times, heads, pairs, rest, rows, -1.0 if inverse else 1.0,
        *x.stride()[:3], *y.stride()[:3], *((0, 0) if at is None else at.stride()),
        at is not None, interleaved,
        _HEADS, triton.next_power_of_2(pairs), triton.next_power_of_2(max(rest, 1)),
    )  # fmt: skip
