"""Launches of the CUDA kernels of this room."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from titan_kernels.column_sum import column_sum
from titan_kernels.launch import launch
from titan_kernels.ops.bias_dropout_residual.reference import is_random, scale, threshold
from titan_kernels.platforms import cuda_ready, multiprocessors, suffix
from titan_kernels.registry import YES, Verdict, no
from titan_kernels.rows import as_rows, transposed_stride

__all__ = ["bias_dropout_residual", "bias_dropout_residual_backward", "supports", "supports_backward"]

_UNIT = "bias_dropout_residual"
_WARP = 32
_TEAM = 256  # threads that share a row of a block's tile
_BLOCK = 512
_FORWARD_THREADS = 1024  # per multiprocessor
# One block per multiprocessor: each writes a row of partial sums.
_BACKWARD_THREADS = 512
_ALIGNMENTS = 8  # ways in which rows can be shifted against vectors
_LONGEST_ROW = 2**30


def supports(
    x: Tensor, bias: Tensor | None, residual: Tensor | None, seed: Tensor | None, offset: int, p: float
) -> Verdict:
    """Whether :func:`bias_dropout_residual` serves the call."""
    if residual is not None and residual.dtype not in (x.dtype, torch.float32):
        return no(f"the residual's dtype ({residual.dtype}) is neither that of x ({x.dtype}) nor fp32")
    if bias is not None and bias.dtype not in (x.dtype, torch.float32):
        return no(f"the bias's dtype ({bias.dtype}) is neither that of x ({x.dtype}) nor fp32")
    return _supports(x, bias, residual, seed)


def supports_backward(
    dy: Tensor,
    bias: Tensor | None,
    seed: Tensor | None,
    offset: int,
    p: float,
    dtype: torch.dtype | None,
    output_mask: Sequence[bool],
) -> Verdict:
    """Whether :func:`bias_dropout_residual_backward` serves the call."""
    narrow = dtype or dy.dtype
    if dy.dtype not in (narrow, torch.float32) or narrow not in (
        torch.float16,
        torch.bfloat16,
        torch.float32,
    ):
        return no(f"there is no kernel from {dy.dtype} to {narrow}")
    return _supports(dy, bias, seed)


def _supports(x: Tensor, bias: Tensor | None, *others: Tensor | None) -> Verdict:
    ready = cuda_ready(x, bias, *others)
    if not ready.ok:
        return ready
    if bias is not None and x.shape[-1] > _LONGEST_ROW:
        return no(f"rows of {x.shape[-1]} elements are too long")
    return YES


@dataclass(frozen=True)
class _Walk:
    """Geometry of a launch whose threads keep to their columns, see ``kernel.cu``.

    Args:
        columns: Elements of a row.
        width: Elements of a vector.
        grid: Tiles of columns, and blocks that share the rows.
        block: Threads of a row, and rows at the same time.
        stride: Column stride of a transposed row of a block's tile.
    """

    columns: int
    width: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    stride: int


def _plan(x: Tensor, dtype: torch.dtype, bias: bool, threads: int) -> _Walk:
    """For rows of ``x`` where a bias belongs to them; else rows are as long as suits the kernel."""
    width = 16 // dtype.itemsize
    columns = x.shape[-1] if bias else _TEAM * width
    rows = -(-x.numel() // columns) if columns else 0
    vectors = -(-columns // width) + (columns % width > 0)
    tiles = -(-vectors // _TEAM)
    team = -(-vectors // (max(tiles, 1) * _WARP)) * _WARP
    teams = _BLOCK // team if team else 1
    resident = multiprocessors(x.device) * (threads // _BLOCK) * _BLOCK // max(team * teams * tiles, 1)
    sharing = min(-(-rows // teams), max(resident, 1))
    sharing = -(-sharing // _ALIGNMENTS) * _ALIGNMENTS
    stride = transposed_stride(team * width, dtype)
    return _Walk(columns, width, (tiles, sharing, 1), (team, teams, 1), stride)


def _wider(a: torch.dtype, b: torch.dtype) -> torch.dtype:
    return a if a.itemsize >= b.itemsize else b


def bias_dropout_residual(
    x: Tensor, bias: Tensor | None, residual: Tensor | None, seed: Tensor | None, offset: int, p: float
) -> Tensor:
    """Forward."""
    rows, added = as_rows(x), None if residual is None else as_rows(residual)
    y = torch.empty_like(rows if added is None else added)
    plan = _plan(x, _wider(x.dtype, y.dtype), bias is not None, _FORWARD_THREADS)
    flat = None if bias is None else bias.contiguous()
    narrow, wide = (flat, None) if flat is not None and flat.dtype == x.dtype else (None, flat)
    launch(
        _UNIT,
        f"bias_dropout_residual_forward_{suffix(x.dtype)}_{suffix(y.dtype)}",
        plan.grid,
        plan.block,
        (rows, narrow, wide, added, y, *_randomness(plan, x, seed, offset, p)),
        shared=0 if bias is None else _shared(plan, 1),
    )
    return y.view(x.shape)


def bias_dropout_residual_backward(
    dy: Tensor,
    bias: Tensor | None,
    seed: Tensor | None,
    offset: int,
    p: float,
    dtype: torch.dtype | None,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of x and the bias, as far as wanted; the bias's is summed per block, then over the blocks."""
    rows, narrow, (_, with_bias) = as_rows(dy), dtype or dy.dtype, output_mask
    dx = torch.empty_like(rows, dtype=narrow) if output_mask[0] else None
    threads = _BACKWARD_THREADS if with_bias else _FORWARD_THREADS
    plan = _plan(dy, _wider(dy.dtype, narrow), with_bias, threads)
    partial = rows.new_empty((plan.grid[1], plan.columns), dtype=torch.float32) if with_bias else None
    launch(
        _UNIT,
        f"bias_dropout_residual_backward_{suffix(dy.dtype)}_{suffix(narrow)}",
        plan.grid,
        plan.block,
        (rows, dx, partial, *_randomness(plan, dy, seed, offset, p)),
        shared=_shared(plan, plan.block[1]) if with_bias else 0,
    )
    return None if dx is None else dx.view(dy.shape), column_sum(_UNIT, partial, bias)


def _randomness(
    plan: _Walk, x: Tensor, seed: Tensor | None, offset: int, p: float
) -> tuple[Tensor | int | float | None, ...]:
    """The last arguments of both kernels; one without a seed draws nothing."""
    drawn = seed if is_random(p, seed) else None
    return drawn, x.numel(), plan.columns, offset, threshold(p), scale(p), plan.stride


def _shared(plan: _Walk, rows: int) -> int:
    """Bytes of dynamic shared memory for so many transposed rows of fp32."""
    return rows * plan.width * plan.stride * 4
