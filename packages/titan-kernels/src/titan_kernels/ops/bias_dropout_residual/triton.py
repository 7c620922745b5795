"""Triton kernels of this room: one program per piece of the flat tensor."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from titan_kernels.ops.bias_dropout_residual.reference import is_random, scale, threshold

__all__ = ["bias_dropout_residual", "bias_dropout_residual_backward"]

_BLOCK = 1024


@triton.jit
def _keep(seed, position, limit, RANDOM: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Which of the positions from `position`, a multiple of 4, on stay."""
    if RANDOM:
        number = position // 4 + tl.arange(0, BLOCK // 4)
        low, high = number.to(tl.uint32), (number >> 32).to(tl.uint32)
        zero = low * 0
        w0, w1, w2, w3 = tl.philox(tl.load(seed), low, high, zero, zero)
        words = tl.interleave(tl.interleave(w0, w2), tl.interleave(w1, w3)).to(tl.int64)
    else:
        words = tl.zeros((BLOCK,), tl.int64)
    return words >= limit


@triton.jit
def _forward_kernel(  # type: ignore[no-untyped-def]
    x, bias, residual, y, seed, count, n, offset, limit, factor,
    HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr, RANDOM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    # Programs begin at multiples of 4 of the random stream, which may be before the first element.
    begin = tl.program_id(0).to(tl.int64) * BLOCK - offset % 4
    at = begin + tl.arange(0, BLOCK)
    inside = (at >= 0) & (at < count)
    v = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    if HAS_BIAS:
        v += tl.load(bias + at % n, mask=inside, other=0.0).to(tl.float32)
    v = tl.where(_keep(seed, offset + begin, limit, RANDOM, BLOCK), v * factor, 0.0)
    if HAS_RESIDUAL:
        v += tl.load(residual + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + at, v.to(y.dtype.element_ty), mask=inside)


def _run(
    x: Tensor,
    bias: Tensor | None,
    residual: Tensor | None,
    y: Tensor,
    seed: Tensor | None,
    offset: int,
    p: float,
) -> None:
    count = x.numel()
    if count:
        random = is_random(p, seed)
        _forward_kernel[(triton.cdiv(count + offset % 4, _BLOCK),)](
            x, x if bias is None else bias, x if residual is None else residual, y,
            x if seed is None else seed, count, x.shape[-1], offset, threshold(p), scale(p),
            bias is not None, residual is not None, random, _BLOCK,
        )  # fmt: skip


def bias_dropout_residual(
    x: Tensor, bias: Tensor | None, residual: Tensor | None, seed: Tensor | None, offset: int, p: float
) -> Tensor:
    """Forward."""
    y = torch.empty_like(x if residual is None else residual, memory_format=torch.contiguous_format)
    added = None if residual is None else residual.contiguous()
    _run(x.contiguous(), None if bias is None else bias.contiguous(), added, y, seed, offset, p)
    return y


def bias_dropout_residual_backward(
    dy: Tensor,
    bias: Tensor | None,
    seed: Tensor | None,
    offset: int,
    p: float,
    dtype: torch.dtype | None,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of x and the bias, as far as wanted; the bias's is PyTorch's sum over the fp32 gradient."""
    narrow = dtype or dy.dtype
    wide = torch.empty_like(
        dy, dtype=torch.float32 if output_mask[1] else narrow, memory_format=torch.contiguous_format
    )
    _run(dy.contiguous(), None, None, wide, seed, offset, p)
    dbias = None
    if output_mask[1] and bias is not None:
        dbias = wide.unsqueeze(0).flatten(0, -2).sum(0).to(bias.dtype)
    return wide.to(narrow) if output_mask[0] else None, dbias
