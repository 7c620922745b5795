"""Root mean square normalisation of the last dimension, optionally of a sum with a residual.

``y = x / sqrt(mean(x^2) + eps) * weight``; Zhang and Sennrich, "Root Mean Square Layer Normalization",
arXiv:1910.07467.
"""

from __future__ import annotations

from typing import Any, overload

import torch
from torch import Tensor

from titan_kernels import checks, columns
from titan_kernels.numerics import compute_dtype
from titan_kernels.ops.rms_norm import cases, cuda, reference
from titan_kernels.platforms import always, triton_implementation, triton_row
from titan_kernels.registry import Implementation, Op

__all__ = ["rms_norm"]

_TRITON = "titan_kernels.ops.rms_norm.triton"


@overload
def rms_norm(x: Tensor, weight: Tensor | None = ..., *, residual: None = ..., eps: float = ...) -> Tensor: ...
@overload
def rms_norm(
    x: Tensor, weight: Tensor | None = ..., *, residual: Tensor, eps: float = ...
) -> tuple[Tensor, Tensor]: ...
def rms_norm(
    x: Tensor, weight: Tensor | None = None, *, residual: Tensor | None = None, eps: float = 1e-6
) -> Tensor | tuple[Tensor, Tensor]:
    """Normalise by the root mean square over the last dimension, with fp32 sums.

    Args:
        x: (..., D), floating point.
        weight: (D), in the dtype of ``x`` or fp32; no scaling when absent.
        residual: (..., D), added to ``x`` first; the sum is rounded to the dtype of ``x``.
        eps: Added to the mean square; not negative.

    Returns:
        The normalised tensor, shaped and typed like ``x``; with a residual also the sum.

    Raises:
        ValueError: Shapes, dtypes or devices do not fit together, or ``eps`` is negative; says all that is
            wrong.
    """
    _check(x, weight, residual, eps)
    if residual is None:
        y: Tensor = RMS_NORM(x, weight, eps)[0]
        return y
    y, total, _ = ADD_RMS_NORM(x, residual, weight, eps)
    return y, total


def _check(x: Tensor, weight: Tensor | None, residual: Tensor | None, eps: float) -> None:
    checks.raise_problems(
        [
            *checks.row_problems("x", x),
            *checks.parameter_problems("weight", weight, x),
            *checks.like_problems("residual", residual, "x", x),
            *checks.device_problems(x=x, weight=weight, residual=residual),
            *checks.eps_problems(eps),
        ]
    )


def _statistics(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[:-1], dtype=compute_dtype(x.dtype))


def _empty(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


RMS_NORM = Op(
    schema="rms_norm(Tensor x, Tensor? weight, float eps) -> (Tensor, Tensor)",
    fake=lambda x, weight, eps: (_empty(x), _statistics(x)),
    implementations=(
        Implementation("cuda", cuda.supports, cuda.rms_norm),
        triton_implementation(_TRITON, "rms_norm", triton_row),
        Implementation("reference", always, reference.rms_norm),
    ),
    cases=cases.forward_cases,
    occupancy=columns.FORWARD_OCCUPANCY,
    declined=cases.DECLINED,
)

ADD_RMS_NORM = Op(
    schema="add_rms_norm(Tensor x, Tensor residual, Tensor? weight, float eps) -> (Tensor, Tensor, Tensor)",
    fake=lambda x, residual, weight, eps: (_empty(x), _empty(x), _statistics(x)),
    implementations=(
        Implementation("cuda", cuda.supports_add, cuda.add_rms_norm),
        triton_implementation(_TRITON, "add_rms_norm", triton_row),
        Implementation("reference", always, reference.add_rms_norm),
    ),
    cases=cases.add_cases,
    functions=("rms_norm",),
    occupancy=columns.FORWARD_OCCUPANCY,
    declined=cases.DECLINED,
)

RMS_NORM_BACKWARD = Op(
    schema="rms_norm_backward(Tensor dy, Tensor x, Tensor? weight, Tensor rstd, Tensor? dsum,"
    " bool[2] output_mask) -> (Tensor?, Tensor?)",
    fake=lambda dy, x, weight, rstd, dsum, mask: tuple(
        _empty(each) if wanted else None for each, wanted in zip((x, weight), mask, strict=True)
    ),
    implementations=(
        Implementation("cuda", cuda.supports_backward, cuda.rms_norm_backward),
        triton_implementation(_TRITON, "rms_norm_backward", triton_row),
        Implementation("reference", always, reference.rms_norm_backward),
    ),
    cases=cases.backward_cases,
    functions=("rms_norm",),
    occupancy=columns.BACKWARD_OCCUPANCY,
    declined=cases.DECLINED,
)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, weight, _ = inputs
    ctx.save_for_backward(x, weight, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, dy: Tensor | None, _rstd: None) -> tuple[Tensor | None, Tensor | None, None]:
    if dy is None:
        return None, None, None
    x, weight, rstd = ctx.saved_tensors
    return *RMS_NORM_BACKWARD(dy, x, weight, rstd, None, ctx.needs_input_grad[:2]), None


def _save_add(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    _, _, weight, _ = inputs
    _, total, rstd = output
    ctx.save_for_backward(total, weight, rstd)
    ctx.mark_non_differentiable(rstd)
    ctx.set_materialize_grads(False)


def _backward_add(
    ctx: Any, dy: Tensor | None, dsum: Tensor | None, _rstd: None
) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
    if dy is None:
        return dsum, dsum, None, None
    total, weight, rstd = ctx.saved_tensors
    for_x, for_residual, for_weight, _ = ctx.needs_input_grad
    mask = for_x or for_residual, for_weight
    dx, dweight = RMS_NORM_BACKWARD(dy, total, weight, rstd, dsum, mask)
    return dx, dx, dweight, None


RMS_NORM.register_autograd(_backward, _save)
ADD_RMS_NORM.register_autograd(_backward_add, _save_add)
