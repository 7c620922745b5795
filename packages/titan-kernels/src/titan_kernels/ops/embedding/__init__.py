"""Rows of a table by index, with a deterministic gradient."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from titan_kernels import checks
from titan_kernels.numerics import compute_dtype
from titan_kernels.ops.embedding import cases, cuda, reference
from titan_kernels.platforms import always, triton_implementation
from titan_kernels.registry import Implementation, Op

__all__ = ["embedding", "embedding_gradient"]

_TRITON = "titan_kernels.ops.embedding.triton"
_INDEX_DTYPES = (torch.int32, torch.int64)
_NO_PADDING = -1


def embedding(
    indices: Tensor, weight: Tensor, padding_idx: int | None = None, scale: float | None = None
) -> Tensor:
    """Look up rows of ``weight``, optionally times a number.

    The gradient is dense and deterministic: positions with the same index are added in fp32, in their
    order; a segment of more than 128 of them in pieces, which are then added in order.

    **Indices out of range.** On a CPU the reference raises.  On a GPU, where a check would wait for the
    device, such a position gives NaN and adds nothing to the gradient.

    Args:
        indices: Rows to look up, any shape, int32 or int64.
        weight: (V, D), floating point.
        padding_idx: A row whose gradient is zero; negative counts from the end.
        scale: Factor of the result, as Gemma's sqrt(D); applied in fp32, before the only rounding.

    Returns:
        (*indices.shape, D), in the dtype of ``weight``.

    Raises:
        ValueError: Shapes, dtypes or ``padding_idx`` do not fit together.
        IndexError: An index is out of range, on a CPU.
    """
    rule = "it must be a table (V, D), fp16, bf16, fp32 or float64"
    table = weight.dim() == 2 and checks.is_float(weight.dtype)
    checks.raise_problems(
        [
            *([] if table else [f"weight ({checks.described(weight)}): {rule}"]),
            *_index_problems(indices),
            *checks.device_problems(weight=weight, indices=indices),
        ]
    )
    padding = _padding(padding_idx, weight.shape[0])
    out: Tensor = EMBEDDING(indices.long(), weight, padding, 1.0 if scale is None else scale)
    return out


def embedding_gradient(
    grad: Tensor,
    indices: Tensor,
    rows: int,
    padding_idx: int | None = None,
    scale: float | None = None,
    *,
    fp32: bool = False,
) -> Tensor:
    """The gradient of the table, as the backward of :func:`embedding` computes it.

    Args:
        grad: (*indices.shape, D), the gradient of the result.
        indices: The rows that were looked up, int32 or int64.
        rows: V, the rows of the table.
        padding_idx: As in :func:`embedding`, like ``scale``.
        scale: Factor of the result.
        fp32: Return the fp32 sums instead of rounding them to the dtype of ``grad``.

    Returns:
        (V, D); rows that were not looked up are zero.

    Raises:
        ValueError: Shapes, dtypes or ``padding_idx`` do not fit together.
    """
    rule = f"it must be like the indices {tuple(indices.shape)} with another dimension"
    fits = grad.dim() > 0 and grad.shape[:-1] == indices.shape
    checks.raise_problems(
        [
            *([] if fits else [f"grad (shape {tuple(grad.shape)}): {rule}"]),
            *checks.float_problems(grad=grad),
            *_index_problems(indices),
            *checks.device_problems(grad=grad, indices=indices),
        ]
    )
    padding = _padding(padding_idx, rows)
    out: Tensor = EMBEDDING_BACKWARD(
        grad, indices.long(), rows, padding, 1.0 if scale is None else scale, fp32
    )
    return out


def _index_problems(indices: Tensor) -> list[str]:
    if indices.dtype in _INDEX_DTYPES:
        return []
    return [f"indices ({indices.dtype}): they must be int64 or int32"]


def _padding(padding_idx: int | None, rows: int) -> int:
    if padding_idx is None:
        return _NO_PADDING
    if not -rows <= padding_idx < rows:
        raise ValueError(f"padding_idx ({padding_idx}): it must be from {-rows} to {rows - 1}")
    return padding_idx % rows


def _looked_up(indices: Tensor, weight: Tensor, padding: int, scale: float) -> Tensor:
    return weight.new_empty((*indices.shape, weight.shape[1]))


def _table(grad: Tensor, indices: Tensor, rows: int, padding: int, scale: float, fp32: bool) -> Tensor:
    return grad.new_empty((rows, grad.shape[-1]), dtype=compute_dtype(grad.dtype) if fp32 else grad.dtype)


def _forward_bytes(args: tuple[Any, ...], out: Tensor) -> int:
    """A row read and a row written per position, not the whole table."""
    return int(2 * out.nbytes + args[0].nbytes)


EMBEDDING = Op(
    schema="embedding(Tensor indices, Tensor weight, SymInt padding, float scale) -> Tensor",
    fake=_looked_up,
    implementations=(
        Implementation("cuda", cuda.supports, cuda.embedding),
        triton_implementation(_TRITON, "embedding"),
        Implementation("reference", always, reference.embedding),
    ),
    cases=cases.forward_cases,
    occupancy={"sm_70": 0.25, "sm_75": 0.37},
    minimum_bytes=_forward_bytes,
)

EMBEDDING_BACKWARD = Op(
    schema="embedding_backward(Tensor grad, Tensor indices, SymInt rows, SymInt padding, float scale, "
    "bool fp32) -> Tensor",
    fake=_table,
    implementations=(
        Implementation("cuda", cuda.supports_backward, cuda.embedding_backward),
        triton_implementation(_TRITON, "embedding_backward"),
        Implementation("reference", always, reference.embedding_backward),
    ),
    cases=cases.backward_cases,
    functions=("embedding", "embedding_gradient"),
)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    indices, weight, ctx.padding, ctx.scale = inputs
    ctx.rows = weight.shape[0]
    ctx.save_for_backward(indices)


def _backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None, None]:
    (indices,) = ctx.saved_tensors
    return None, EMBEDDING_BACKWARD(grad, indices, ctx.rows, ctx.padding, ctx.scale, False), None, None


EMBEDDING.register_autograd(_backward, _save)
