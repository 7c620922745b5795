"""Triton kernels of this room: one program per row forward, a loop over rows backward."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from titan_kernels.platforms import multiprocessors
from titan_kernels.rows import as_rows

__all__ = ["add_rms_norm", "rms_norm", "rms_norm_backward"]


@triton.jit
def _forward_kernel(  # type: ignore[no-untyped-def]
    x, residual, weight, y, total, rstd, n, eps,
    HAS_RESIDUAL: tl.constexpr, HAS_WEIGHT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < n
    v = tl.load(x + row * n + at, mask=inside, other=0.0).to(tl.float32)
    if HAS_RESIDUAL:
        v += tl.load(residual + row * n + at, mask=inside, other=0.0).to(tl.float32)
        rounded = v.to(total.dtype.element_ty)
        tl.store(total + row * n + at, rounded, mask=inside)
        v = rounded.to(tl.float32)
    scale = tl.rsqrt(tl.sum(v * v, 0) / n + eps)
    tl.store(rstd + row, scale)
    v *= scale
    if HAS_WEIGHT:
        v *= tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + row * n + at, v.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _backward_kernel(  # type: ignore[no-untyped-def]
    dy, x, weight, rstd, dsum, dx, partial, rows, n,
    HAS_WEIGHT: tl.constexpr, HAS_DSUM: tl.constexpr, DX: tl.constexpr, DWEIGHT: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < n
    w = tl.full((BLOCK,), 1.0, tl.float32)
    if HAS_WEIGHT:
        w = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    sums = tl.zeros((BLOCK,), tl.float32)
    start = program.to(tl.int64) * n
    for row in range(program, rows, tl.num_programs(0)):
        scale = tl.load(rstd + row)
        grad = tl.load(dy + start + at, mask=inside, other=0.0).to(tl.float32)
        xhat = tl.load(x + start + at, mask=inside, other=0.0).to(tl.float32) * scale
        sums += grad * xhat
        if DX:
            grad *= w
            out = scale * (grad - xhat * (tl.sum(grad * xhat, 0) / n))
            if HAS_DSUM:
                out += tl.load(dsum + start + at, mask=inside, other=0.0).to(tl.float32)
            tl.store(dx + start + at, out.to(dx.dtype.element_ty), mask=inside)
        start += tl.num_programs(0).to(tl.int64) * n
    if DWEIGHT:
        tl.store(partial + program.to(tl.int64) * n + at, sums, mask=inside)


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """Forward without a residual."""
    y, _, rstd = _forward(x, None, weight, eps)
    return y, rstd


def add_rms_norm(
    x: Tensor, residual: Tensor, weight: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Forward with a residual."""
    return _forward(x, residual, weight, eps)


def _forward(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    rows = as_rows(x)
    added = rows if residual is None else as_rows(residual)
    y, rstd = torch.empty_like(rows), rows.new_empty(rows.shape[0], dtype=torch.float32)
    total = rows if residual is None else torch.empty_like(rows)
    if rows.numel():
        _forward_kernel[(rows.shape[0],)](
            rows, added, rows if weight is None else weight.contiguous(), y, total, rstd, rows.shape[1], eps,
            residual is not None, weight is not None, **_shape(rows),
        )  # fmt: skip
    return y.view(x.shape), total.view(x.shape), rstd.view(x.shape[:-1])


def rms_norm_backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    rstd: Tensor,
    dsum: Tensor | None,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of x and the weight, as far as wanted; the weight's is summed per program, then over them."""
    rows, grad = as_rows(x), as_rows(dy)
    programs = min(rows.shape[0], 2 * multiprocessors(x.device))
    dx = torch.empty_like(rows) if output_mask[0] else None
    partial = rows.new_zeros((programs, rows.shape[1]), dtype=torch.float32) if output_mask[1] else None
    if rows.numel():
        _backward_kernel[(programs,)](
            grad, rows, rows if weight is None else weight.contiguous(), rstd.contiguous(),
            rows if dsum is None else as_rows(dsum), rows if dx is None else dx,
            rows if partial is None else partial, *rows.shape,
            weight is not None, dsum is not None, dx is not None, partial is not None, **_shape(rows),
        )  # fmt: skip
    dweight = None if partial is None or weight is None else partial.sum(0).to(weight.dtype)
    return None if dx is None else dx.view(x.shape), dweight


def _shape(rows: Tensor) -> dict[str, int]:
    block = triton.next_power_of_2(rows.shape[1])
    return {"BLOCK": block, "num_warps": min(16, max(1, block // 512))}
