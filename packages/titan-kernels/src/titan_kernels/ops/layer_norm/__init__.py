"""Layer normalisation of the last dimension, optionally of a sum with a residual.

``y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias`` with the biased variance; Ba, Kiros and Hinton,
"Layer Normalization", arXiv:1607.06450.
"""

from __future__ import annotations

from typing import Any, overload

import torch
from torch import Tensor

from titan_kernels import checks, columns
from titan_kernels.numerics import compute_dtype
from titan_kernels.ops.layer_norm import cases, cuda, reference
from titan_kernels.platforms import always, triton_implementation, triton_row
from titan_kernels.registry import Implementation, Op

__all__ = ["layer_norm"]

_TRITON = "titan_kernels.ops.layer_norm.triton"


@overload
def layer_norm(
    x: Tensor,
    weight: Tensor | None = ...,
    bias: Tensor | None = ...,
    *,
    residual: None = ...,
    eps: float = ...,
) -> Tensor: ...
@overload
def layer_norm(
    x: Tensor,
    weight: Tensor | None = ...,
    bias: Tensor | None = ...,
    *,
    residual: Tensor,
    eps: float = ...,
) -> tuple[Tensor, Tensor]: ...
def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    residual: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor | tuple[Tensor, Tensor]:
    """Bring the last dimension to mean 0 and variance 1, then scale and shift it; sums are fp32.

    Args:
        x: (..., D), floating point.
        weight: (D), in the dtype of ``x`` or fp32; no scaling when absent.
        bias: (D), in the dtype of ``x`` or fp32; no shift when absent.
        residual: (..., D), added to ``x`` first; the sum is rounded to the dtype of ``x``.
        eps: Added to the variance; not negative.

    Returns:
        The normalised tensor, shaped and typed like ``x``; with a residual also the sum.

    Raises:
        ValueError: Shapes, dtypes or devices do not fit together, or ``eps`` is negative; says all that is
            wrong.
    """
    _check(x, weight, bias, residual, eps)
    if residual is None:
        y: Tensor = LAYER_NORM(x, weight, bias, eps)[0]
        return y
    y, total, _ = ADD_LAYER_NORM(x, residual, weight, bias, eps)
    return y, total


def _check(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, residual: Tensor | None, eps: float
) -> None:
    checks.raise_problems(
        [
            *checks.row_problems("x", x),
            *checks.parameter_problems("weight", weight, x),
            *checks.parameter_problems("bias", bias, x),
            *checks.like_problems("residual", residual, "x", x),
            *checks.device_problems(x=x, weight=weight, bias=bias, residual=residual),
            *checks.eps_problems(eps),
        ]
    )


def _statistics(x: Tensor) -> Tensor:
    return x.new_empty((*x.shape[:-1], 2), dtype=compute_dtype(x.dtype))


def _empty(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


LAYER_NORM = Op(
    schema="layer_norm(Tensor x, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor)",
    fake=lambda x, weight, bias, eps: (_empty(x), _statistics(x)),
    implementations=(
        Implementation("cuda", cuda.supports, cuda.layer_norm),
        triton_implementation(_TRITON, "layer_norm", triton_row),
        Implementation("reference", always, reference.layer_norm),
    ),
    cases=cases.forward_cases,
    occupancy=columns.FORWARD_OCCUPANCY,
    declined=cases.DECLINED,
)

ADD_LAYER_NORM = Op(
    schema="add_layer_norm(Tensor x, Tensor residual, Tensor? weight, Tensor? bias, float eps)"
    " -> (Tensor, Tensor, Tensor)",
    fake=lambda x, residual, weight, bias, eps: (_empty(x), _empty(x), _statistics(x)),
    implementations=(
        Implementation("cuda", cuda.supports_add, cuda.add_layer_norm),
        triton_implementation(_TRITON, "add_layer_norm", triton_row),
        Implementation("reference", always, reference.add_layer_norm),
    ),
    cases=cases.add_cases,
    functions=("layer_norm",),
    occupancy=columns.FORWARD_OCCUPANCY,
    declined=cases.DECLINED,
)

LAYER_NORM_BACKWARD = Op(
    schema="layer_norm_backward(Tensor dy, Tensor x, Tensor? weight, Tensor? bias, Tensor statistics,"
    " Tensor? dsum, bool[3] output_mask) -> (Tensor?, Tensor?, Tensor?)",
    fake=lambda dy, x, weight, bias, statistics, dsum, mask: tuple(
        _empty(each) if wanted else None for each, wanted in zip((x, weight, bias), mask, strict=True)
    ),
    implementations=(
        Implementation("cuda", cuda.supports_backward, cuda.layer_norm_backward),
        triton_implementation(_TRITON, "layer_norm_backward", triton_row),
        Implementation("reference", always, reference.layer_norm_backward),
    ),
    cases=cases.backward_cases,
    functions=("layer_norm",),
    occupancy=columns.BACKWARD_OCCUPANCY,
    declined=cases.DECLINED,
)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weight, bias, _ = inputs
    _, statistics = output
    ctx.save_for_backward(x, weight, bias, statistics)
    ctx.mark_non_differentiable(statistics)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, dy: Tensor | None, _statistics: None) -> tuple[Tensor | None, ...]:
    if dy is None:
        return (None,) * 4
    return *LAYER_NORM_BACKWARD(dy, *ctx.saved_tensors, None, ctx.needs_input_grad[:3]), None


def _save_add(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _, _, weight, bias, _ = inputs
    _, total, statistics = output
    ctx.save_for_backward(total, weight, bias, statistics)
    ctx.mark_non_differentiable(statistics)
    ctx.set_materialize_grads(False)


def _backward_add(
    ctx: Any, dy: Tensor | None, dsum: Tensor | None, _statistics: None
) -> tuple[Tensor | None, ...]:
    if dy is None:
        return dsum, dsum, None, None, None
    for_x, for_residual, *for_parameters, _ = ctx.needs_input_grad
    mask = for_x or for_residual, *for_parameters
    dx, dweight, dbias = LAYER_NORM_BACKWARD(dy, *ctx.saved_tensors, dsum, mask)
    return dx, dx, dweight, dbias, None


LAYER_NORM.register_autograd(_backward, _save)
ADD_LAYER_NORM.register_autograd(_backward_add, _save_add)
