"""Launches of the CUDA kernels of this room."""

from __future__ import annotations

import torch
from torch import Tensor

from titan_kernels.column_sum import column_sum
from titan_kernels.launch import launch
from titan_kernels.platforms import cuda_ready, suffix
from titan_kernels.registry import YES, Verdict, no
from titan_kernels.rows import SHARED_LIMIT, as_rows, longest_row, plan_rows, row_grid, transposed_stride

__all__ = ["add_rms_norm", "rms_norm", "rms_norm_backward", "supports", "supports_add", "supports_backward"]

_UNIT = "rms_norm"


def _supports(x: Tensor, weight: Tensor | None, *others: Tensor | None, sums: bool = False) -> Verdict:
    ready = cuda_ready(x, weight, *others)
    if not ready.ok:
        return ready
    if x.shape[-1] > longest_row(x.dtype) or _shared(x, weight, sums) > SHARED_LIMIT:
        return no(f"rows of {x.shape[-1]} elements do not fit into registers and shared memory")
    if weight is not None and weight.dtype not in (x.dtype, torch.float32):
        return no(f"the weight's dtype ({weight.dtype}) is neither that of x ({x.dtype}) nor fp32")
    if any(each is not None and each.dtype != x.dtype for each in others):
        return no("x, the residual and the gradients have different dtypes")
    return YES


def supports(x: Tensor, weight: Tensor | None, eps: float) -> Verdict:
    """Whether :func:`rms_norm` serves the call."""
    return _supports(x, weight)


def supports_add(x: Tensor, residual: Tensor, weight: Tensor | None, eps: float) -> Verdict:
    """Whether :func:`add_rms_norm` serves the call."""
    return _supports(x, weight, residual)


def supports_backward(
    dy: Tensor, x: Tensor, weight: Tensor | None, rstd: Tensor, dsum: Tensor | None
) -> Verdict:
    """Whether :func:`rms_norm_backward` serves the call."""
    return _supports(x, weight, dy, dsum, sums=True)


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
    added = None if residual is None else as_rows(residual)
    y, rstd = torch.empty_like(rows), rows.new_empty(rows.shape[0], dtype=torch.float32)
    total = rows if added is None else torch.empty_like(rows)
    plan = plan_rows(rows.shape[1], x.dtype)
    launch(
        _UNIT,
        f"rms_norm_forward_{_suffixes(x, weight)}_{plan.variant}",
        row_grid(rows.shape[0], plan, x.device),
        plan.block,
        (rows, added, _contiguous(weight), y, total, rstd, *rows.shape, _stride(rows), eps),
        shared=_shared(rows, weight, sums=False),
    )
    return y.view(x.shape), total.view(x.shape), rstd.view(x.shape[:-1])


def rms_norm_backward(
    dy: Tensor, x: Tensor, weight: Tensor | None, rstd: Tensor, dsum: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Gradients of x and the weight; the weight's is summed per block, then over the blocks."""
    rows, grad = as_rows(x), as_rows(dy)
    passed = None if dsum is None else as_rows(dsum)
    plan = plan_rows(rows.shape[1], x.dtype)
    # One block of the largest size per multiprocessor: each writes one row of partial sums.
    grid = row_grid(rows.shape[0], plan, x.device, threads_per_multiprocessor=512)
    dx = torch.empty_like(rows)
    partial = None if weight is None else rows.new_empty((grid, rows.shape[1]), dtype=torch.float32)
    launch(
        _UNIT,
        f"rms_norm_backward_{_suffixes(x, weight)}_{plan.variant}",
        grid,
        plan.block,
        (grad, rows, _contiguous(weight), rstd.contiguous(), passed, dx, partial, *rows.shape, _stride(rows)),
        shared=_shared(rows, weight, sums=True),
    )
    if weight is None or partial is None:
        return dx.view(x.shape), x.new_empty(0)
    return dx.view(x.shape), column_sum(_UNIT, partial, weight)


def _suffixes(x: Tensor, weight: Tensor | None) -> str:
    return f"{suffix(x.dtype)}_{suffix(x.dtype if weight is None else weight.dtype)}"


def _contiguous(weight: Tensor | None) -> Tensor | None:
    return None if weight is None else weight.contiguous()


def _stride(rows: Tensor) -> int:
    return transposed_stride(rows.shape[-1], rows.dtype)


def _shared(x: Tensor, weight: Tensor | None, sums: bool) -> int:
    """Bytes of dynamic shared memory: a transposed row of weights, and one of fp32 sums per team."""
    if weight is None:
        return 0
    elements = 16 // x.dtype.itemsize * _stride(x)
    rows_of_sums = plan_rows(x.shape[-1], x.dtype).rows_per_block if sums else 0
    return elements * (weight.dtype.itemsize + 4 * rows_of_sums)
