"""Launches of the CUDA kernels of this room."""

from __future__ import annotations

import torch
from torch import Tensor

from titan_kernels.column_sum import column_sum
from titan_kernels.launch import launch
from titan_kernels.platforms import cuda_ready, suffix
from titan_kernels.registry import YES, Verdict, no
from titan_kernels.rows import SHARED_LIMIT, as_rows, transposed_stride
from titan_kernels.teams import TEAM_MAX_THREADS, plan_teams

__all__ = [
    "add_layer_norm",
    "layer_norm",
    "layer_norm_backward",
    "supports",
    "supports_add",
    "supports_backward",
]

_UNIT = "layer_norm"
_ELEMENTS_PER_THREAD = 16
_LONGEST_ROW = TEAM_MAX_THREADS * _ELEMENTS_PER_THREAD
# Small blocks and two of them per multiprocessor: while one waits at a barrier, the other loads.
_BLOCK = 256
_THREADS_PER_MULTIPROCESSOR = 512


def _supports(
    x: Tensor, parameters: tuple[Tensor | None, Tensor | None], *others: Tensor | None, sums: bool = False
) -> Verdict:
    ready = cuda_ready(x, *parameters, *others)
    if not ready.ok:
        return ready
    if x.shape[-1] > _LONGEST_ROW:
        return no(f"rows of {x.shape[-1]} elements are longer than {_LONGEST_ROW}")
    if _shared(x, sums) > SHARED_LIMIT:
        return no(
            f"rows of {x.shape[-1]} elements are no whole 16-byte vectors and too long for shared memory"
        )
    for each in parameters:
        if each is not None and each.dtype not in (x.dtype, torch.float32):
            return no(f"a parameter's dtype ({each.dtype}) is neither that of x ({x.dtype}) nor fp32")
    if any(each is not None and each.dtype != x.dtype for each in others):
        return no("x, the residual and the gradients have different dtypes")
    return YES


def supports(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Verdict:
    """Whether :func:`layer_norm` serves the call."""
    return _supports(x, (weight, bias))


def supports_add(
    x: Tensor, residual: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> Verdict:
    """Whether :func:`add_layer_norm` serves the call."""
    return _supports(x, (weight, bias), residual)


def supports_backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    statistics: Tensor,
    dsum: Tensor | None,
) -> Verdict:
    """Whether :func:`layer_norm_backward` serves the call."""
    return _supports(x, (weight, bias), dy, dsum, sums=True)


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
    added = None if residual is None else as_rows(residual)
    y, statistics = torch.empty_like(rows), rows.new_empty((rows.shape[0], 2), dtype=torch.float32)
    total = rows if added is None else torch.empty_like(rows)
    parameters = (*_parameter(weight, x), *_parameter(bias, x))
    plan = plan_teams(rows.shape[1], _ELEMENTS_PER_THREAD, _BLOCK)
    launch(
        _UNIT,
        f"layer_norm_forward_{_variant(rows)}",
        plan.grid(rows.shape[0], x.device, _THREADS_PER_MULTIPROCESSOR),
        plan.block,
        (rows, added, *parameters, y, total, statistics, *rows.shape, _stride(rows), eps),
        shared=_shared(rows, sums=False),
    )
    return y.view(x.shape), total.view(x.shape), statistics.view(*x.shape[:-1], 2)


def layer_norm_backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    statistics: Tensor,
    dsum: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x and the parameters; those of the parameters summed per block, then over the blocks."""
    rows, grad = as_rows(x), as_rows(dy)
    passed = None if dsum is None else as_rows(dsum)
    plan = plan_teams(rows.shape[1], _ELEMENTS_PER_THREAD, _BLOCK)
    grid = plan.grid(rows.shape[0], x.device, _THREADS_PER_MULTIPROCESSOR)
    dx = torch.empty_like(rows)
    sums = [
        None if each is None else rows.new_empty((grid, rows.shape[1]), dtype=torch.float32)
        for each in (weight, bias)
    ]
    given = (*_parameter(weight, x), statistics.contiguous())
    launch(
        _UNIT,
        f"layer_norm_backward_{_variant(rows)}",
        grid,
        plan.block,
        (grad, rows, *given, passed, dx, *sums, *rows.shape, _stride(rows)),
        shared=_shared(rows, sums=True),
    )
    return dx.view(x.shape), _parameter_gradient(weight, sums[0], x), _parameter_gradient(bias, sums[1], x)


def _parameter_gradient(parameter: Tensor | None, sums: Tensor | None, x: Tensor) -> Tensor:
    if parameter is None or sums is None:
        return x.new_empty(0)
    return column_sum(_UNIT, sums, parameter)


def _parameter(parameter: Tensor | None, x: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """The kernel's two pointers: one for the dtype of x, one for fp32."""
    if parameter is None:
        return None, None
    given = parameter.contiguous()
    return (given, None) if given.dtype == x.dtype else (None, given)


def _width(x: Tensor) -> int:
    return 16 // x.dtype.itemsize


def _aligned(x: Tensor) -> bool:
    return x.shape[-1] % _width(x) == 0


def _variant(rows: Tensor) -> str:
    return f"{suffix(rows.dtype)}_{'aligned' if _aligned(rows) else 'shifted'}"


def _stride(rows: Tensor) -> int:
    return transposed_stride(rows.shape[-1], rows.dtype)


def _shared(x: Tensor, sums: bool) -> int:
    """Bytes of dynamic shared memory: rows of fp32 values, see the kernels."""
    teams = plan_teams(x.shape[-1], _ELEMENTS_PER_THREAD, _BLOCK).teams
    rows = 1 if _aligned(x) else 1 + 2 * teams if sums else 2
    return 4 * rows * _width(x) * _stride(x)
