"""Bias, dropout and residual connection in one pass, with a mask that nobody stores.

The mask is a pure function of a seed and the position of an element, by the counter-based generator
Philox 4x32-10: Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.  The backward
computes it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from titan_kernels import checks
from titan_kernels.ops.bias_dropout_residual import cases, cuda, reference
from titan_kernels.platforms import always, triton_implementation
from titan_kernels.registry import Implementation, Op

__all__ = ["bias_dropout_residual"]

_TRITON = "titan_kernels.ops.bias_dropout_residual.triton"
_SEEDS = 2**63 - 1


def bias_dropout_residual(
    x: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    *,
    p: float,
    training: bool = True,
    seed: int | Tensor | None = None,
    offset: int = 0,
) -> Tensor:
    """``dropout(x + bias) / (1 - p) + residual``, computed in fp32 and rounded once.

    Which elements are dropped depends on the seed and on ``offset`` plus the element's index in row-major
    order, and on nothing else: implementations, devices, layouts and shards of a tensor agree bit by bit.

    Without a seed each call draws one from PyTorch's generator of the device of ``x``, as a tensor on that
    device.  So nothing waits for the GPU; ``torch.manual_seed`` makes runs repeatable; activation
    checkpointing draws the same seed again (with ``preserve_rng_state=True``, the default); each replay
    of a CUDA graph draws a new one; and ``torch.compile`` sees an ordinary random operator.  A seed given
    as an int is a constant of a CUDA graph, and every replay drops the same elements: pass a
    tensor there and change its value.

    Args:
        x: (..., D), floating point.
        bias: (D), in the dtype of ``x`` or fp32.
        residual: (..., D), in the dtype of ``x`` or fp32; the result has its dtype.
        p: Probability of dropping an element, in [0, 1]; rounded to a multiple of 2^-32.
        training: Drop nothing when false.
        seed: Any int64, as an int or as a tensor of one int64 on the device of ``x``.
        offset: Position of the first element in the seed's stream, not negative.  For a shard of a tensor,
            its first element's index in the whole tensor gives the whole tensor's mask.

    Returns:
        (..., D), contiguous, in the dtype of the residual if there is one, else of ``x``.  The bias's
        gradient is deterministic.

    Raises:
        ValueError: Shapes, dtypes or devices do not fit together, or a number is out of its range.
    """
    _check(x, bias, residual)
    _check_randomness(x, p, seed, offset)
    rate = p if training else 0.0
    y: Tensor = BIAS_DROPOUT_RESIDUAL(x, bias, residual, _seed(x, rate, seed), offset, rate)
    return y


def _check(x: Tensor, bias: Tensor | None, residual: Tensor | None) -> None:
    checks.raise_problems(
        [
            *checks.row_problems("x", x),
            *checks.parameter_problems("bias", bias, x),
            *checks.like_problems("residual", residual, "x", x, fp32=True),
            *checks.device_problems(x=x, bias=bias, residual=residual),
        ]
    )


def _check_randomness(x: Tensor, p: float, seed: int | Tensor | None, offset: int) -> None:
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"p ({p}): it must be a probability, from 0 to 1")
    if offset < 0:
        raise ValueError(f"offset ({offset}): it must not be negative")
    if isinstance(seed, Tensor):
        if seed.numel() != 1 or seed.dtype != torch.int64 or seed.device != x.device:
            raise ValueError(
                f"seed ({seed.dtype}, shape {tuple(seed.shape)}, on {seed.device}): a tensor must hold one "
                f"int64 on the device of x ({x.device})"
            )
    elif seed is not None and not -(2**63) <= seed < 2**63:
        raise ValueError(f"seed ({seed}): it must fit in 64 bits with a sign")


def _seed(x: Tensor, p: float, seed: int | Tensor | None) -> Tensor | None:
    """The seed as a tensor; none where nothing is random, so that the generator stays as it is."""
    if isinstance(seed, Tensor) or reference.threshold(p) in (0, 2**32):
        return seed if isinstance(seed, Tensor) else None
    if seed is None:
        return torch.randint(_SEEDS, (), dtype=torch.int64, device=x.device)
    return torch.full((), seed, dtype=torch.int64, device=x.device)


def _fake(
    x: Tensor, bias: Tensor | None, residual: Tensor | None, seed: Tensor | None, offset: int, p: float
) -> Tensor:
    return torch.empty_like(x if residual is None else residual, memory_format=torch.contiguous_format)


def _fake_backward(
    dy: Tensor,
    bias: Tensor | None,
    seed: Tensor | None,
    offset: int,
    p: float,
    dtype: torch.dtype | None,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    def fresh(like: Tensor, dtype: torch.dtype) -> Tensor:
        return torch.empty_like(like, dtype=dtype, memory_format=torch.contiguous_format)

    dx = fresh(dy, dtype or dy.dtype) if output_mask[0] else None
    return dx, fresh(bias, bias.dtype) if output_mask[1] and bias is not None else None


BIAS_DROPOUT_RESIDUAL = Op(
    schema="bias_dropout_residual(Tensor x, Tensor? bias, Tensor? residual, Tensor? seed, SymInt offset, "
    "float p) -> Tensor",
    fake=_fake,
    implementations=(
        Implementation("cuda", cuda.supports, cuda.bias_dropout_residual),
        triton_implementation(_TRITON, "bias_dropout_residual"),
        Implementation("reference", always, reference.bias_dropout_residual),
    ),
    cases=cases.forward_cases,
)

BIAS_DROPOUT_RESIDUAL_BACKWARD = Op(
    schema="bias_dropout_residual_backward(Tensor dy, Tensor? bias, Tensor? seed, SymInt offset, float p, "
    "ScalarType? dtype, bool[2] output_mask) -> (Tensor?, Tensor?)",
    fake=_fake_backward,
    implementations=(
        Implementation("cuda", cuda.supports_backward, cuda.bias_dropout_residual_backward),
        triton_implementation(_TRITON, "bias_dropout_residual_backward"),
        Implementation("reference", always, reference.bias_dropout_residual_backward),
    ),
    cases=cases.backward_cases,
    functions=("bias_dropout_residual",),
)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, bias, _, seed, ctx.offset, ctx.p = inputs
    ctx.dtype = x.dtype
    ctx.save_for_backward(bias, seed)


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    bias, seed = ctx.saved_tensors
    mask, for_residual = ctx.needs_input_grad[:2], ctx.needs_input_grad[2]
    dx = dbias = None
    if any(mask):
        dx, dbias = BIAS_DROPOUT_RESIDUAL_BACKWARD(dy, bias, seed, ctx.offset, ctx.p, ctx.dtype, mask)
    return dx, dbias, dy if for_residual else None, None, None, None


BIAS_DROPOUT_RESIDUAL.register_autograd(_backward, _save)
