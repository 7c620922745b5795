"""Launches of the CUDA kernels of this room."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from titan_kernels.column_sum import column_sum
from titan_kernels.columns import ColumnPlan, pointers
from titan_kernels.launch import launch
from titan_kernels.registry import Verdict
from titan_kernels.rows import as_rows

__all__ = ["add_rms_norm", "rms_norm", "rms_norm_backward", "supports", "supports_add", "supports_backward"]

_UNIT = "rms_norm"


def _plan(x: Tensor, sums: int = 0) -> ColumnPlan:
    return ColumnPlan(x.shape[-1], x.dtype, parameters=1, sums=sums)


def supports(x: Tensor, weight: Tensor | None, eps: float) -> Verdict:
    """Whether :func:`rms_norm` serves the call."""
    return _plan(x).supports(x, (weight,), ())


def supports_add(x: Tensor, residual: Tensor, weight: Tensor | None, eps: float) -> Verdict:
    """Whether :func:`add_rms_norm` serves the call."""
    return _plan(x).supports(x, (weight,), (residual,))


def supports_backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    rstd: Tensor,
    dsum: Tensor | None,
    output_mask: Sequence[bool],
) -> Verdict:
    """Whether :func:`rms_norm_backward` serves the call."""
    return _plan(x, sums=1).supports(x, (weight,), (dy, dsum))


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
    rows, plan = as_rows(x), _plan(x)
    added = None if residual is None else as_rows(residual)
    y, rstd = torch.empty_like(rows), rows.new_empty(rows.shape[0], dtype=torch.float32)
    total = rows if added is None else torch.empty_like(rows)
    launch(
        _UNIT,
        f"rms_norm_forward_{plan.variant}",
        plan.grid(rows.shape[0], x.device),
        plan.teams.block,
        (rows, added, *pointers(weight, x), y, total, rstd, *rows.shape, plan.stride, eps),
        shared=plan.shared,
    )
    return y.view(x.shape), total.view(x.shape), rstd.view(x.shape[:-1])


def rms_norm_backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    rstd: Tensor,
    dsum: Tensor | None,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of x and the weight, as far as wanted; the weight's is summed per block, then over them."""
    rows, grad, plan = as_rows(x), as_rows(dy), _plan(x, sums=1)
    passed = None if dsum is None else as_rows(dsum)
    grid = plan.grid(rows.shape[0], x.device)
    dx = torch.empty_like(rows) if output_mask[0] else None
    sums = rows.new_empty((grid, rows.shape[1]), dtype=torch.float32) if output_mask[1] else None
    given = (*pointers(weight, x), rstd.contiguous())
    launch(
        _UNIT,
        f"rms_norm_backward_{plan.variant}",
        grid,
        plan.teams.block,
        (grad, rows, *given, passed, dx, sums, *rows.shape, plan.stride),
        shared=plan.shared,
    )
    return None if dx is None else dx.view(x.shape), column_sum(_UNIT, sums, weight)
