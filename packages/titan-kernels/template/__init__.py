"""new_op: a tensor times a number.

Say here what the operator computes, as a formula, and where it comes from (paper or documentation).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from titan_kernels import checks
from titan_kernels.ops.new_op import cases, cuda, reference
from titan_kernels.platforms import always, triton_implementation
from titan_kernels.registry import Implementation, Op

__all__ = ["new_op"]


def new_op(x: Tensor, factor: float) -> Tensor:
    """Multiply by a number, in fp32.

    Args:
        x: Any shape, floating point.
        factor: The number.

    Returns:
        ``factor * x``, shaped and typed like ``x``.

    Raises:
        ValueError: ``x`` is not floating point.
    """
    checks.raise_problems(checks.float_problems(x=x))
    y: Tensor = NEW_OP(x, factor)
    return y


NEW_OP = Op(
    schema="new_op(Tensor x, float factor) -> Tensor",
    fake=lambda x, factor: torch.empty_like(x, memory_format=torch.contiguous_format),
    implementations=(
        Implementation("cuda", cuda.supports, cuda.new_op),
        triton_implementation("titan_kernels.ops.new_op.triton", "new_op"),
        Implementation("reference", always, reference.new_op),
    ),
    cases=cases.cases,
)


def _save(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
    ctx.factor = inputs[1]


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor, None]:
    return NEW_OP(dy, ctx.factor), None


NEW_OP.register_autograd(_backward, _save, twice=True)
