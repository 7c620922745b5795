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

__all__ = [
    "add_layer_norm",
    "layer_norm",
    "layer_norm_backward",
    "supports",
    "supports_add",
    "supports_backward",
]

_UNIT = "layer_norm"


def _plan(x: Tensor, sums: int = 0) -> ColumnPlan:
    return ColumnPlan(x.shape[-1], x.dtype, parameters=1 if sums else 2, sums=sums)


def supports(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Verdict:
    """Whether :func:`layer_norm` serves the call."""
    return _plan(x).supports(x, (weight, bias), ())


def supports_add(
    x: Tensor, residual: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Verdict:
    """Whether :func:`add_layer_norm` serves the call."""
    return _plan(x).supports(x, (weight, bias), (residual,))


def supports_backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    statistics: Tensor,
    dsum: Tensor | None,
    output_mask: Sequence[bool],
) -> Verdict:
    """Whether :func:`layer_norm_backward` serves the call."""
    return _plan(x, sums=2).supports(x, (weight, bias), (dy, dsum))


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
    rows, plan = as_rows(x), _plan(x)
    added = None if residual is None else as_rows(residual)
    y, statistics = torch.empty_like(rows), rows.new_empty((rows.shape[0], 2), dtype=torch.float32)
    total = rows if added is None else torch.empty_like(rows)
    parameters = (*pointers(weight, x), *pointers(bias, x))
    launch(
        _UNIT,
        f"layer_norm_forward_{plan.variant}",
        plan.grid(rows.shape[0], x.device),
        plan.teams.block,
        (rows, added, *parameters, y, total, statistics, *rows.shape, plan.stride, eps),
        shared=plan.shared,
    )
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
    """Gradients of x and the parameters, as far as wanted; sums are per block, then over the blocks."""
    rows, grad, plan = as_rows(x), as_rows(dy), _plan(x, sums=2)
    passed = None if dsum is None else as_rows(dsum)
    grid = plan.grid(rows.shape[0], x.device)
    dx = torch.empty_like(rows) if output_mask[0] else None
    sums = [
        rows.new_empty((grid, rows.shape[1]), dtype=torch.float32) if wanted else None
        for wanted in output_mask[1:]
    ]
    given = (*pointers(weight, x), as_rows(statistics))  # read in pairs
    launch(
        _UNIT,
        f"layer_norm_backward_{plan.variant}",
        grid,
        plan.teams.block,
        (grad, rows, *given, passed, dx, *sums, *rows.shape, plan.stride),
        shared=plan.shared,
    )
    dweight, dbias = (column_sum(_UNIT, *each) for each in zip(sums, (weight, bias), strict=True))
    return None if dx is None else dx.view(x.shape), dweight, dbias
