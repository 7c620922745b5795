"""Triton kernels of this room; imported when one first runs."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["new_op"]

_BLOCK = 1024


@triton.jit
def _kernel(x, y, n, factor, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < n).to(tl.float32)
    tl.store(y + at, (v * factor).to(y.dtype.element_ty), mask=at < n)


def new_op(x: Tensor, factor: float) -> Tensor:
    """One program per 1024 elements."""
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        _kernel[(triton.cdiv(x.numel(), _BLOCK),)](x, y, x.numel(), factor, BLOCK=_BLOCK)
    return y
