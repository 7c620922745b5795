"""Sums, means, maxima, norms and variances over any dimensions, with fp32 accumulators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from titan_kernels import checks
from titan_kernels.ops.reduce import cases, cuda, reference
from titan_kernels.ops.reduce.collapse import kept_shape, reduced_size
from titan_kernels.ops.reduce.gradients import backward, backward_var_mean
from titan_kernels.ops.reduce.kinds import KINDS
from titan_kernels.platforms import always, triton_implementation
from titan_kernels.registry import YES, Implementation, Op, Verdict, no

__all__ = ["reduce", "var_mean"]

_TRITON = "titan_kernels.ops.reduce.triton"


def reduce(
    x: Tensor,
    kind: Literal["sum", "mean", "amax", "norm", "inf_norm", "var"],
    dim: int | Sequence[int] | None = None,
    *,
    keepdim: bool = False,
    correction: float = 1.0,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Reduce over some dimensions in one pass, accumulating in fp32 and rounding once.

    NaN, infinities and empty tensors give what PyTorch's functions of the same names give.  Results do not
    depend on timing: large reductions have two stages, with a fixed order in each.

    Args:
        x: Any shape and strides, floating point.
        kind: ``sum``, ``mean``, ``amax``, ``norm`` (Euclidean), ``inf_norm`` (largest absolute value) or
            ``var`` (variance).  Elements that tie for ``amax`` or ``inf_norm`` share the gradient.
        dim: The dimension or dimensions to reduce; all of them when absent or empty.
        keepdim: Keep reduced dimensions with size 1.
        correction: For ``var``: the sum of squares is divided by the number of elements less this.
        dtype: Of the result; that of ``x`` when absent.

    Returns:
        Contiguous.

    Raises:
        ValueError: An argument has no such value, or there is no element to take the maximum of.
    """
    if kind not in KINDS:
        raise ValueError(f"kind ({kind!r}): it must be one of {', '.join(KINDS)}")
    numbers = _dimensions(x, dim)
    _check(x, dtype)
    _check_empty(x, kind, numbers)
    # A maximum is rounded afterwards: its gradient looks for elements that equal it.
    late = dtype if KINDS[kind].accumulator == "largest" else None
    y: Tensor = REDUCE(x, kind, numbers, keepdim, correction, None if late else dtype)
    return y.to(late) if late else y


def var_mean(
    x: Tensor,
    dim: int | Sequence[int] | None = None,
    *,
    keepdim: bool = False,
    correction: float = 1.0,
    dtype: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Variance and mean in one pass; see :func:`reduce` for the arguments.

    Returns:
        The variance and the mean, both contiguous.

    Raises:
        ValueError: An argument has no such value.
    """
    numbers = _dimensions(x, dim)
    _check(x, dtype)
    variance, mean = VAR_MEAN(x, numbers, keepdim, correction, dtype)
    return variance, mean


def _dimensions(x: Tensor, dim: int | Sequence[int] | None) -> list[int]:
    """The dimensions as different numbers from 0 on, in order."""
    given = [dim] if isinstance(dim, int) else list(dim or range(x.dim()))
    if any(not -x.dim() <= d < x.dim() for d in given):
        raise ValueError(
            f"dim ({dim}): x has {x.dim()} dimensions, so they go from {-x.dim()} to {x.dim() - 1}"
        )
    numbers = sorted(d % x.dim() for d in given)
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"dim ({dim}): a dimension can be reduced only once")
    return numbers


def _check(x: Tensor, dtype: torch.dtype | None) -> None:
    problems = checks.float_problems(x=x)
    if dtype is not None and not checks.is_float(dtype):
        problems.append(f"dtype ({dtype}): the result must be floating point, fp16, bf16, fp32 or float64")
    checks.raise_problems(problems)


def _check_empty(x: Tensor, kind: str, dims: list[int]) -> None:
    if not KINDS[kind].empty and reduced_size(x, dims) == 0:
        raise ValueError(f"x (shape {tuple(x.shape)}): {kind} over no elements has no value")


def _fake(
    x: Tensor, kind: str, dims: list[int], keepdim: bool, correction: float, dtype: torch.dtype | None
) -> Tensor:
    return x.new_empty(kept_shape(x, dims, keepdim), dtype=dtype or x.dtype)


def _fake_var_mean(
    x: Tensor, dims: list[int], keepdim: bool, correction: float, dtype: torch.dtype | None
) -> tuple[Tensor, Tensor]:
    shape = kept_shape(x, dims, keepdim)
    return x.new_empty(shape, dtype=dtype or x.dtype), x.new_empty(shape, dtype=dtype or x.dtype)


def _triton_reduce(x: Tensor, kind: str, dims: list[int], *_: Any) -> Verdict:
    return no("there are no elements to reduce") if reduced_size(x, dims) == 0 else YES


def _triton_var_mean(x: Tensor, dims: list[int], *_: Any) -> Verdict:
    return _triton_reduce(x, "var", dims)


REDUCE = Op(
    schema="reduce(Tensor x, str kind, int[] dim, bool keepdim, float correction, ScalarType? dtype)"
    " -> Tensor",
    fake=_fake,
    implementations=(
        Implementation("cuda", cuda.supports, cuda.reduce),
        triton_implementation(_TRITON, "reduce", _triton_reduce),
        Implementation("reference", always, reference.reduce),
    ),
    cases=cases.reduce_cases,
    declined={"cuda": cases.EMPTY, "triton": cases.EMPTY},
)

VAR_MEAN = Op(
    schema="var_mean(Tensor x, int[] dim, bool keepdim, float correction, ScalarType? dtype)"
    " -> (Tensor, Tensor)",
    fake=_fake_var_mean,
    implementations=(
        Implementation("cuda", cuda.supports_var_mean, cuda.var_mean),
        triton_implementation(_TRITON, "var_mean", _triton_var_mean),
        Implementation("reference", always, reference.var_mean),
    ),
    cases=cases.var_mean_cases,
)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, ctx.kind, ctx.dims, ctx.keepdim, ctx.correction, _ = inputs
    ctx.shape, ctx.dtype = x.shape, x.dtype
    # Sum and mean need no more than the shape.
    if ctx.kind not in ("sum", "mean"):
        ctx.save_for_backward(x, output)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, y = ctx.saved_tensors or (None, None)
    dx = backward(grad, x, y, ctx.kind, ctx.dims, ctx.keepdim, ctx.correction, ctx.shape)
    return dx.to(ctx.dtype), None, None, None, None, None


def _save_var_mean(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, ctx.dims, ctx.keepdim, ctx.correction, _ = inputs
    ctx.save_for_backward(x)
    ctx.set_materialize_grads(False)


def _backward_var_mean(ctx: Any, dvar: Tensor | None, dmean: Tensor | None) -> tuple[Tensor | None, ...]:
    (x,) = ctx.saved_tensors
    dx = backward_var_mean(dvar, dmean, x, ctx.dims, ctx.keepdim, ctx.correction)
    return None if dx is None else dx.to(x.dtype), None, None, None, None


REDUCE.register_autograd(_backward, _save, twice=True)
VAR_MEAN.register_autograd(_backward_var_mean, _save_var_mean, twice=True)
