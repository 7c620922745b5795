"""Triton kernels of this room: one program per row forward, a loop over rows backward."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from titan_kernels.platforms import multiprocessors
from titan_kernels.rows import as_rows

__all__ = ["add_layer_norm", "layer_norm", "layer_norm_backward"]


@triton.jit
def _forward_kernel(  # type: ignore[no-untyped-def]
    x, residual, weight, bias, y, total, statistics, n, eps,
    HAS_RESIDUAL: tl.constexpr, HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr,
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
    center = tl.sum(v, 0) / n
    v = tl.where(inside, v - center, 0.0)
    scale = tl.rsqrt(tl.sum(v * v, 0) / n + eps)
    tl.store(statistics + 2 * row, center)
    tl.store(statistics + 2 * row + 1, scale)
    v *= scale
    if HAS_WEIGHT:
        v *= tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    if HAS_BIAS:
        v += tl.load(bias + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + row * n + at, v.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _backward_kernel(  # type: ignore[no-untyped-def]
    dy, x, weight, statistics, dsum, dx, weight_sums, bias_sums, rows, n,
    HAS_WEIGHT: tl.constexpr, HAS_DSUM: tl.constexpr, DX: tl.constexpr, DWEIGHT: tl.constexpr,
    DBIAS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    program = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    inside = at < n
    w = tl.full((BLOCK,), 1.0, tl.float32)
    if HAS_WEIGHT:
        w = tl.load(weight + at, mask=inside, other=0.0).to(tl.float32)
    dweight = tl.zeros((BLOCK,), tl.float32)
    dbias = tl.zeros((BLOCK,), tl.float32)
    start = program.to(tl.int64) * n
    for row in range(program, rows, tl.num_programs(0)):
        center = tl.load(statistics + 2 * row)
        scale = tl.load(statistics + 2 * row + 1)
        grad = tl.load(dy + start + at, mask=inside, other=0.0).to(tl.float32)
        v = tl.load(x + start + at, mask=inside, other=0.0).to(tl.float32)
        xhat = tl.where(inside, (v - center) * scale, 0.0)
        dweight += grad * xhat
        dbias += grad
        if DX:
            grad *= w
            out = scale * (grad - tl.sum(grad, 0) / n - xhat * (tl.sum(grad * xhat, 0) / n))
            if HAS_DSUM:
                out += tl.load(dsum + start + at, mask=inside, other=0.0).to(tl.float32)
            tl.store(dx + start + at, out.to(dx.dtype.element_ty), mask=inside)
        start += tl.num_programs(0).to(tl.int64) * n
    if DWEIGHT:
        tl.store(weight_sums + program.to(tl.int64) * n + at, dweight, mask=inside)
    if DBIAS:
        tl.store(bias_sums + program.to(tl.int64) * n + at, dbias, mask=inside)


def layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """Forward without a residual."""
    y, _, statistics = _forward(x, None, weight, bias, eps)
    return y, statistics


def add_layer_norm(
    x: Tensor, residual: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Forward with a residual."""
    return _forward(x, residual, weight, bias, eps)


def _forward(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    rows = as_rows(x)
    added = rows if residual is None else as_rows(residual)
    y, total = torch.empty_like(rows), rows if residual is None else torch.empty_like(rows)
    statistics = rows.new_full((rows.shape[0], 2), torch.nan, dtype=torch.float32)
    if rows.numel():
        _forward_kernel[(rows.shape[0],)](
            rows, added, _or(weight, rows), _or(bias, rows), y, total, statistics, rows.shape[1], eps,
            residual is not None, weight is not None, bias is not None, **_shape(rows),
        )  # fmt: skip
    return y.view(x.shape), total.view(x.shape), statistics.view(*x.shape[:-1], 2)


def layer_norm_backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    statistics: Tensor,
    dsum: Tensor | None,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of x and the parameters, as far as wanted; sums are per program, then over all."""
    rows, grad = as_rows(x), as_rows(dy)
    programs = min(rows.shape[0], 2 * multiprocessors(x.device))
    dx = torch.empty_like(rows) if output_mask[0] else None
    sums = [
        rows.new_zeros((programs, rows.shape[1]), dtype=torch.float32) if wanted else None
        for wanted in output_mask[1:]
    ]
    if rows.numel():
        _backward_kernel[(programs,)](
            grad, rows, _or(weight, rows), statistics.contiguous(),
            rows if dsum is None else as_rows(dsum), *(_or(each, rows) for each in (dx, *sums)), *rows.shape,
            weight is not None, dsum is not None, *output_mask, **_shape(rows),
        )  # fmt: skip
    dweight, dbias = (
        None if each is None or partial is None else partial.sum(0).to(each.dtype)
        for each, partial in zip((weight, bias), sums, strict=True)
    )
    return None if dx is None else dx.view(x.shape), dweight, dbias


def _or(given: Tensor | None, unused: Tensor) -> Tensor:
    return unused if given is None else given.contiguous()


def _shape(rows: Tensor) -> dict[str, int]:
    block = triton.next_power_of_2(rows.shape[1])
    return {"BLOCK": block, "num_warps": min(16, max(1, block // 512))}
