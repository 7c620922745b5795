"""The operators of this room and their derivatives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from titan_kernels.numerics import compute_dtype
from titan_kernels.ops.cross_entropy import cases, cuda, reference
from titan_kernels.platforms import always, triton_implementation
from titan_kernels.registry import Implementation, Op, Verdict, no

__all__ = [
    "CROSS_ENTROPY",
    "CROSS_ENTROPY_BACKWARD",
    "CROSS_ENTROPY_BACKWARD_INPLACE",
    "CROSS_ENTROPY_PARTIAL",
    "gradient_of_logits",
]

_BACKWARD_ARGUMENTS = (
    "Tensor target, Tensor lse, SymInt first_class, SymInt classes, int ignore_index, "
    "float label_smoothing, float z_loss, float softcap"
)


def _per_row(logits: Tensor, target: Tensor, count: int) -> tuple[Tensor, ...]:
    dtype = compute_dtype(logits.dtype)
    return tuple(target.new_empty(target.shape, dtype=dtype) for _ in range(count))


def _implementations(
    function: str,
    supports: Callable[..., Verdict],
    softcap_at: int,
    triton: Callable[..., Verdict] = always,
) -> tuple[Implementation, ...]:
    def no_softcap(*args: Any) -> Verdict:
        if args[softcap_at] != 0.0:
            return no("Triton has no accurate tanh for soft-capped logits")
        return triton(*args)

    return (
        Implementation("cuda", supports, getattr(cuda, function)),
        triton_implementation("titan_kernels.ops.cross_entropy.triton", function, no_softcap),
        Implementation("reference", always, getattr(reference, function)),
    )


CROSS_ENTROPY = Op(
    schema="cross_entropy(Tensor logits, Tensor target, int ignore_index, float label_smoothing, "
    "float z_loss, float softcap, bool inplace_gradient) -> (Tensor, Tensor)",
    fake=lambda logits, target, *_: _per_row(logits, target, 2),
    implementations=_implementations("forward", cuda.supports, softcap_at=5),
    cases=cases.forward_cases,
    declined={"triton": cases.CAPPED},
)

CROSS_ENTROPY_PARTIAL = Op(
    schema="cross_entropy_partial(Tensor logits, Tensor target, SymInt first_class, int ignore_index, "
    "float softcap) -> (Tensor, Tensor, Tensor, Tensor)",
    fake=lambda logits, target, *_: _per_row(logits, target, 4),
    implementations=_implementations("partial", cuda.supports, softcap_at=4),
    cases=cases.partial_cases,
    declined={"triton": cases.CAPPED},
)

CROSS_ENTROPY_BACKWARD = Op(
    schema=f"cross_entropy_backward(Tensor grad, Tensor logits, {_BACKWARD_ARGUMENTS}) -> Tensor",
    fake=lambda grad, logits, *_: torch.empty_like(logits, memory_format=torch.contiguous_format),
    implementations=_implementations("backward", cuda.supports_backward, softcap_at=9),
    cases=cases.backward_cases,
    functions=("cross_entropy", "cross_entropy_shard_gradient"),
    declined={"triton": cases.CAPPED},
)

CROSS_ENTROPY_BACKWARD_INPLACE = Op(
    schema=f"cross_entropy_backward_inplace(Tensor grad, Tensor(a!) logits, {_BACKWARD_ARGUMENTS}) -> ()",
    fake=lambda *_: None,
    implementations=_implementations(
        "backward_inplace", cuda.supports_inplace, softcap_at=9, triton=cuda.contiguous_logits
    ),
    cases=cases.inplace_cases,
    functions=("cross_entropy", "cross_entropy_shard_gradient"),
    declined={"triton": cases.CAPPED},
)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    logits, target, *options, inplace = inputs
    ctx.options, ctx.inplace = options, inplace
    ctx.save_for_backward(logits, target, output[1])
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, grad: Tensor | None, _lse: None) -> tuple[Tensor | None, ...]:
    if grad is None:
        return (None,) * 7
    logits, target, lse = ctx.saved_tensors
    gradient = gradient_of_logits(
        grad, logits, target, lse, 0, logits.shape[-1], *ctx.options, inplace=ctx.inplace
    )
    return (gradient, *[None] * 6)


def gradient_of_logits(grad: Tensor, logits: Tensor, *args: Any, inplace: bool) -> Tensor:
    """In memory of its own, or over the logits."""
    if not inplace:
        gradient: Tensor = CROSS_ENTROPY_BACKWARD(grad, logits, *args)
        return gradient
    memory = logits.detach()
    CROSS_ENTROPY_BACKWARD_INPLACE(grad, memory, *args)
    # Whoever kept the logits for a backward of its own must hear of it: a version shared by all views.
    torch.autograd.graph.increment_version(memory)
    return memory


CROSS_ENTROPY.register_autograd(_backward, _save)
