"""Rotary position embedding, for one tensor or for queries and keys together.

Su et al., "RoFormer", arXiv:2104.09864.  The rotation of pair i at position p has the cosine and the
sine of row p, column i of the caller's tables, which hold any scaling of the frequencies.
"""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor

from titan_kernels.ops.rope import cases, cuda, reference
from titan_kernels.ops.rope.check import check
from titan_kernels.ops.rope.in_place import autograd_in_place
from titan_kernels.ops.rope.layout import like
from titan_kernels.platforms import always, triton_implementation
from titan_kernels.registry import Implementation, Op

__all__ = ["rope", "rope_qk"]

_TRITON = "titan_kernels.ops.rope.triton"


def rope(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    positions: Tensor | None = None,
    interleaved: bool = False,
    inplace: bool = False,
    layout: Literal["bthd", "bhtd"] = "bthd",
) -> Tensor:
    """Rotate pairs of elements of every head by angles that depend on the position.

    Args:
        x: (B, T, H, D), or (B, H, T, D) with that layout; floating point, D even.  Any strides will do:
            those with contiguous heads are read where they are.
        cos: (R, P), cosines by position and pair, in fp32 or the dtype of ``x``.  P is at most D / 2; the
            elements of a head from 2 P on stay as they are.
        sin: (R, P), sines, like ``cos``.
        positions: (T) or (B, T), integers in [0, R), the row of each token; 0 to T - 1 when absent.  They
            are not checked, since that would wait for the GPU: positions outside give NaN.
        interleaved: Pair the elements (2 i, 2 i + 1), as in GPT-J; otherwise (i, i + P), as in Hugging
            Face's Llama.
        inplace: Write into ``x``, with the rules of autograd for operations in place.
        layout: The order of the dimensions of ``x``.

    Returns:
        Shaped and typed like ``x``, dense in the order of its dimensions in memory; ``x`` itself in place.
        Differentiable by ``x`` any number of times.

    Raises:
        ValueError: Shapes, dtypes or options do not fit together; says all that is wrong.
    """
    check({"x": x}, cos, sin, positions, layout)
    return _rope(x, None, cos, sin, positions, interleaved, inplace, layout)[0]


def rope_qk(
    q: Tensor,
    k: Tensor,
    cos: Tensor,
    sin: Tensor,
    *,
    positions: Tensor | None = None,
    interleaved: bool = False,
    inplace: bool = False,
    layout: Literal["bthd", "bhtd"] = "bthd",
) -> tuple[Tensor, Tensor]:
    """:func:`rope` of queries and keys in one launch (two in place where gradients are recorded).

    Args:
        q: (B, T, H, D), or (B, H, T, D) with that layout.
        k: Like ``q``, but its number of heads may be another.
        cos: (R, P); this and the other arguments are those of :func:`rope`.
        sin: (R, P).
        positions: (T) or (B, T), or none.
        interleaved: The pairing.
        inplace: Write into ``q`` and ``k``.
        layout: The order of the dimensions of ``q`` and ``k``.

    Returns:
        The rotated queries and keys.

    Raises:
        ValueError: Shapes, dtypes or options do not fit together; says all that is wrong.
    """
    check({"q": q, "k": k}, cos, sin, positions, layout)
    return _rope(q, k, cos, sin, positions, interleaved, inplace, layout)


def _rope(
    q: Tensor,
    k: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None,
    interleaved: bool,
    inplace: bool,
    layout: str,
) -> tuple[Tensor, Any]:
    """The operators know (B, T, H, D) only; the other layout is a matter of strides."""
    swap = layout == "bhtd"
    tensors = [each.transpose(1, 2) if swap and each is not None else each for each in (q, k)]
    if inplace:
        ROPE_(*tensors, cos, sin, positions, interleaved, False)
        return q, k
    rotated = ROPE(*tensors, cos, sin, positions, interleaved, False)
    first, second = (each.transpose(1, 2) if swap and each is not None else each for each in rotated)
    return first, second


def _fake(q: Tensor, k: Tensor | None, *_: object) -> tuple[Tensor, Tensor | None]:
    return like(q), None if k is None else like(k)


def _bytes_in_place(args: tuple[Any, ...], _: None) -> int:
    """What stays as it is, the rest of every head, is not touched."""
    q, k, cos, sin, positions = args[:5]
    rotated = sum(2 * x[..., : 2 * cos.shape[1]].numel() * x.element_size() for x in (q, k) if x is not None)
    return rotated + sum(x.numel() * x.element_size() for x in (cos, sin, positions) if x is not None)


# inverse rotates by the negative angles, which is the derivative.
_ARGUMENTS = "Tensor cos, Tensor sin, Tensor? positions, bool interleaved, bool inverse"

ROPE = Op(
    schema=f"rope(Tensor q, Tensor? k, {_ARGUMENTS}) -> (Tensor, Tensor?)",
    fake=_fake,
    implementations=(
        Implementation("cuda", cuda.supports, cuda.rope),
        triton_implementation(_TRITON, "rope"),
        Implementation("reference", always, reference.rope),
    ),
    cases=cases.cases,
    functions=("rope_qk",),
)

ROPE_ = Op(
    schema=f"rope_(Tensor(a!) q, Tensor(b!)? k, {_ARGUMENTS}) -> ()",
    fake=lambda *_: None,
    implementations=(
        Implementation("cuda", cuda.supports_in_place, cuda.rope_),
        triton_implementation(_TRITON, "rope_", cuda.contiguous_heads),
        Implementation("reference", always, reference.rope_),
    ),
    cases=cases.in_place_cases,
    functions=("rope", "rope_qk"),
    minimum_bytes=_bytes_in_place,
    declined=cases.DECLINED_IN_PLACE,
)


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor | None]) -> None:
    _, _, cos, sin, positions, ctx.interleaved, ctx.inverse = inputs
    ctx.save_for_backward(cos, sin, positions)
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    wanted = [dx if needed else None for dx, needed in zip(grads, ctx.needs_input_grad[:2], strict=True)]
    given = [each for each in wanted if each is not None]
    rotated: list[Tensor] = []
    if given:
        pair = (*given, None)[:2]
        rotated = list(ROPE(*pair, *ctx.saved_tensors, ctx.interleaved, not ctx.inverse))
    return tuple(None if each is None else rotated.pop(0) for each in wanted) + (None,) * 5


ROPE.register_autograd(_backward, _save, twice=True)
ROPE_.register_autograd_kernel(autograd_in_place(ROPE, ROPE_))
