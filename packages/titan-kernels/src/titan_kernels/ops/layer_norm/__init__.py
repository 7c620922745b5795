"""Layer normalisation of the last dimension, optionally of a sum with a residual.

``y = (x - mean(x)) / sqrt(var(x) + eps) * weight + bias`` with the biased variance; Ba, Kiros and Hinton,
"Layer Normalization", arXiv:1607.06450.
"""

from __future__ import annotations

from typing import Any, overload

import torch
from torch import Tensor

from titan_kernels import columns
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
        eps: Added to the variance.

    Returns:
        The normalised tensor, shaped and typed like ``x``; with a residual also the sum.

    Raises:
        ValueError: Shapes or dtypes do not fit together.
    """
    _check(x, weight, bias, residual)
    if residual is None:
        y: Tensor = LAYER_NORM(x, weight, bias, eps)[0]
        return y
    y, total, _ = ADD_LAYER_NORM(x, residual, weight, bias, eps)
    return y, total


def _check(x: Tensor, weight: Tensor | None, bias: Tensor | None, residual: Tensor | None) -> None:
    if x.dim() == 0 or not x.is_floating_point():
        raise ValueError(f"x ({x.dtype}, shape {tuple(x.shape)}): it needs floating-point rows (..., D)")
    for name, each in (("weight", weight), ("bias", bias)):
        if each is None:
            continue
        if each.shape != x.shape[-1:]:
            raise ValueError(f"{name} (shape {tuple(each.shape)}): it must have the shape ({x.shape[-1]},)")
        if each.dtype not in (x.dtype, torch.float32):
            raise ValueError(
                f"{name} ({each.dtype}): it must have the dtype of x ({x.dtype}) or torch.float32"
            )
    if residual is not None and (residual.shape != x.shape or residual.dtype != x.dtype):
        raise ValueError(
            f"residual ({residual.dtype}, shape {tuple(residual.shape)}): it must be like x "
            f"({x.dtype}, shape {tuple(x.shape)})"
        )


def _statistics(x: Tensor) -> Tensor:
    return x.new_empty((*x.shape[:-1], 2), dtype=compute_dtype(x.dtype))


def _empty(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _gradient(parameter: Tensor | None, x: Tensor) -> Tensor:
    return x.new_empty(0) if parameter is None else _empty(parameter)


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
    occupancy=columns.FORWARD_OCCUPANCY,
    declined=cases.DECLINED,
)

LAYER_NORM_BACKWARD = Op(
    schema="layer_norm_backward(Tensor dy, Tensor x, Tensor? weight, Tensor? bias, Tensor statistics,"
    " Tensor? dsum) -> (Tensor, Tensor, Tensor)",
    fake=lambda dy, x, weight, bias, statistics, dsum: (_empty(x), _gradient(weight, x), _gradient(bias, x)),
    implementations=(
        Implementation("cuda", cuda.supports_backward, cuda.layer_norm_backward),
        triton_implementation(_TRITON, "layer_norm_backward", triton_row),
        Implementation("reference", always, reference.layer_norm_backward),
    ),
    cases=cases.backward_cases,
    occupancy=columns.BACKWARD_OCCUPANCY,
    declined=cases.DECLINED,
)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, weight, bias, _ = inputs
    _, statistics = output
    ctx.save_for_backward(x, weight, bias, statistics)
    ctx.mark_non_differentiable(statistics)
    ctx.set_materialize_grads(False)


def _gradients(
    ctx: Any, dy: Tensor, dsum: Tensor | None, needs_bias: bool
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    x, weight, bias, statistics = ctx.saved_tensors
    bias = bias if needs_bias else None
    dx, dweight, dbias = LAYER_NORM_BACKWARD(dy, x, weight, bias, statistics, dsum)
    return dx, None if weight is None else dweight, None if bias is None else dbias


def _backward(ctx: Any, dy: Tensor | None, _statistics: None) -> tuple[Tensor | None, ...]:
    if dy is None:
        return (None,) * 4
    return (*_gradients(ctx, dy, None, ctx.needs_input_grad[2]), None)


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
    dx, dweight, dbias = _gradients(ctx, dy, dsum, ctx.needs_input_grad[3])
    return dx, dx, dweight, dbias, None


LAYER_NORM.register_autograd(_backward, _save)
ADD_LAYER_NORM.register_autograd(_backward_add, _save_add)
