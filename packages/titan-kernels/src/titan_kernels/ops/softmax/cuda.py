"""Launches of the CUDA kernels of this room."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from titan_kernels.launch import Packed, launch
from titan_kernels.ops.softmax.mask import MaskRows, mask_rows
from titan_kernels.platforms import FLOATS, cuda_ready, suffix
from titan_kernels.registry import YES, Verdict, no
from titan_kernels.rows import as_rows
from titan_kernels.teams import TEAM_MAX_THREADS, TeamPlan, plan_teams

__all__ = ["softmax", "softmax_backward", "supports", "supports_backward"]

_UNIT = "softmax"
_ELEMENTS_PER_THREAD = 32
_LONGEST_IN_REGISTERS = TEAM_MAX_THREADS * _ELEMENTS_PER_THREAD
_BLOCK = 128
_THREADS_PER_MULTIPROCESSOR = 1024
_MOST_ROWS = 2**31 - 1


def supports(
    x: Tensor,
    mask: Tensor | None,
    scale: float,
    diagonal: int | None,
    zero_masked: bool,
    dtype: torch.dtype | None,
) -> Verdict:
    """Whether :func:`softmax` serves the call."""
    verdict = _supports(x, mask, narrow=x.dtype, wide=dtype)
    if not verdict.ok or mask is None:
        return verdict
    if mask.dtype not in (torch.bool, x.dtype, torch.float32):
        return no(f"the mask's dtype ({mask.dtype}) is none of torch.bool, {x.dtype} and torch.float32")
    return YES if mask_rows(mask, x) is not None else no("the mask is broadcast over too many separate dims")


def supports_backward(
    dy: Tensor, y: Tensor, scale: float, diagonal: int | None, dtype: torch.dtype | None
) -> Verdict:
    """Whether :func:`softmax_backward` serves the call."""
    if dy.dtype != y.dtype:
        return no(f"the dtypes of dy ({dy.dtype}) and y ({y.dtype}) differ")
    return _supports(y, dy, narrow=dtype, wide=y.dtype)


def _supports(
    x: Tensor, other: Tensor | None, narrow: torch.dtype | None, wide: torch.dtype | None
) -> Verdict:
    ready = cuda_ready(x, other)
    if not ready.ok:
        return ready
    if narrow is not None and narrow not in FLOATS:
        return no(f"dtype {narrow} is not one of fp16, bf16 and fp32")
    if wide not in (None, narrow, torch.float32) and narrow is not None:
        return no(f"the result's dtype ({wide}) is neither the input's ({narrow}) nor fp32")
    if math.prod(x.shape[:-1]) > _MOST_ROWS:
        return no(f"there are more than {_MOST_ROWS} rows")
    return YES


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
        kernel, plan, grid = _geometry("forward", rows)
        masked = _mask(None if mask is None else mask_rows(mask, x), rows, y)
        launch(
            _UNIT,
            f"softmax_{kernel}_{suffix(x.dtype)}_{suffix(y.dtype)}",
            grid,
            plan.block,
            (rows, *masked, y, *rows.shape, *_causal(x, diagonal), scale, zero_masked),
        )
    return y.view(x.shape)


def softmax_backward(
    dy: Tensor, y: Tensor, scale: float, diagonal: int | None, dtype: torch.dtype | None
) -> Tensor:
    """Backward."""
    rows, grad = as_rows(y), as_rows(dy)
    dx = torch.empty_like(rows, dtype=dtype)
    if rows.numel():
        kernel, plan, grid = _geometry("backward", rows)
        launch(
            _UNIT,
            f"softmax_{kernel}_{suffix(dx.dtype)}_{suffix(y.dtype)}",
            grid,
            plan.block,
            (grad, rows, dx, *rows.shape, *_causal(y, diagonal), scale),
        )
    return dx.view(y.shape)


def _geometry(direction: str, rows: Tensor) -> tuple[str, TeamPlan, int]:
    """Kernel, block and grid."""
    count, columns = rows.shape
    if columns > _LONGEST_IN_REGISTERS:
        kernel, plan = f"{direction}_long", TeamPlan(TEAM_MAX_THREADS, 1)
    else:
        kernel, plan = direction, plan_teams(columns, _ELEMENTS_PER_THREAD, _BLOCK)
    return kernel, plan, plan.grid(count, rows.device, _THREADS_PER_MULTIPROCESSOR)


def _causal(x: Tensor, diagonal: int | None) -> tuple[int, int]:
    """Queries per matrix and the diagonal; without one, all keys are before it."""
    return (1, x.shape[-1]) if diagonal is None else (x.shape[-2], diagonal)


def _mask(
    mask: MaskRows | None, rows: Tensor, y: Tensor
) -> tuple[Tensor | None, Tensor | None, Tensor | None, Packed, bool]:
    """The kernel's three pointers, the place of the mask's rows, and whether vectors of it are aligned."""
    if mask is None:
        return None, None, None, Packed((1, 1, 0, 0, 0), 5), False
    width = 16 // max(rows.element_size(), y.element_size())
    place, vectors = Packed((*mask.sizes, *mask.strides), 5), mask.vectors(rows.shape[1], width)
    if mask.values.dtype == torch.uint8:
        return mask.values, None, None, place, vectors
    if mask.values.dtype == rows.dtype:
        return None, mask.values, None, place, vectors
    return None, None, mask.values, place, vectors
