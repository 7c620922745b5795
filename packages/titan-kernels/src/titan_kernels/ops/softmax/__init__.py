"""Softmax of attention scores: scaled, masked, causal.

``y = softmax(scale * x + mask)`` over the last dimension; the masks are those of Vaswani et al.,
"Attention Is All You Need", arXiv:1706.03762.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from titan_kernels import checks
from titan_kernels.errors import UnsupportedError
from titan_kernels.numerics import compute_dtype
from titan_kernels.ops.softmax import cases, cuda, reference
from titan_kernels.ops.softmax.mask import mask_rows
from titan_kernels.ops.softmax.traffic import backward_bytes, forward_bytes
from titan_kernels.platforms import always, triton_implementation, triton_row
from titan_kernels.registry import Implementation, Op, Verdict, no

__all__ = ["softmax"]

_TRITON = "titan_kernels.ops.softmax.triton"


def softmax(
    x: Tensor,
    *,
    scale: float = 1.0,
    causal: bool | Literal["top-left", "bottom-right"] = False,
    mask: Tensor | None = None,
    masked_rows: Literal["nan", "zero"] = "nan",
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Softmax over the last dimension of ``scale * x``, masked; sums and exponentials are fp32.

    Args:
        x: (..., T_q, T_k), floating point; (..., T_k) where it is not causal.
        scale: Multiplies ``x`` before the mask is added.
        causal: ``True`` or ``"top-left"``: query i sees keys 0 to i, as ``is_causal`` of PyTorch's
            ``scaled_dot_product_attention`` means it.  ``"bottom-right"``: the last query sees every
            key, query i sees keys 0 to i + T_k - T_q, as with a cache of earlier keys.  The two differ
            where T_q and T_k do.
        mask: Broadcastable to ``x``.  bool: ``True`` keeps.  Floating point: added to the scores.  It is
            read where it is, without expanding it over the dimensions it lacks.  If it requires a
            gradient, the scores are computed by PyTorch in fp32 first, which takes more memory.
        masked_rows: Rows without a single visible key become NaN, as with ``torch.softmax``, so that a
            mask that is wrong shows; ``"zero"`` makes them 0 with gradient 0, for padded queries.
        dtype: Of the result: that of ``x`` (default) or fp32.

    Returns:
        The probabilities, shaped like ``x``.

    Raises:
        ValueError: Shapes, dtypes or options do not fit together.
    """
    _check(x, causal, mask, masked_rows, dtype)
    diagonal = _diagonal(x, causal)
    zero = masked_rows == "zero"
    if mask is not None and mask.requires_grad and torch.is_grad_enabled():
        wide = compute_dtype(x.dtype)
        scores = x.to(wide) * scale + mask.to(wide)
        from_scores: Tensor = SOFTMAX(scores, None, 1.0, diagonal, zero, None)
        return from_scores.to(x.dtype if dtype is None else dtype)
    y: Tensor = SOFTMAX(x, mask, scale, diagonal, zero, None if dtype == x.dtype else dtype)
    return y


def _check(
    x: Tensor, causal: bool | str, mask: Tensor | None, masked_rows: str, dtype: torch.dtype | None
) -> None:
    checks.raise_problems(
        [*checks.row_problems("x", x, "(..., T_k)"), *checks.device_problems(x=x, mask=mask)]
    )
    if causal not in (False, True, "top-left", "bottom-right"):
        raise ValueError(f"causal ({causal!r}): it must be False, True, 'top-left' or 'bottom-right'")
    if causal and x.dim() < 2:
        raise ValueError(
            f"causal ({causal!r}): x (shape {tuple(x.shape)}) has no queries; it must be (T_q, T_k)"
        )
    if masked_rows not in ("nan", "zero"):
        raise ValueError(f"masked_rows ({masked_rows!r}): it must be 'nan' or 'zero'")
    if dtype not in (None, x.dtype, compute_dtype(x.dtype)):
        raise ValueError(f"dtype ({dtype}): it must be that of x ({x.dtype}) or torch.float32")
    if mask is not None:
        _check_mask(x, mask)


def _check_mask(x: Tensor, mask: Tensor) -> None:
    if mask.dtype != torch.bool and not checks.is_float(mask.dtype):
        raise ValueError(
            f"mask ({mask.dtype}): it must be torch.bool (True keeps) or fp16 to float64 (added)"
        )
    fits = mask.dim() <= x.dim() and all(
        size in (1, whole) for size, whole in zip(reversed(mask.shape), reversed(x.shape), strict=False)
    )
    if not fits:
        raise ValueError(
            f"mask (shape {tuple(mask.shape)}): it must be broadcastable to x (shape {tuple(x.shape)})"
        )


def _diagonal(x: Tensor, causal: bool | str) -> int | None:
    if not causal:
        return None
    return x.shape[-1] - x.shape[-2] if causal == "bottom-right" else 0


def _triton_forward(x: Tensor, mask: Tensor | None, *_: object) -> Verdict:
    if mask is not None and mask_rows(mask, x) is None:
        return no("the mask is broadcast over too many separate dims")
    return triton_row(x)


def _empty(x: Tensor, dtype: torch.dtype | None) -> Tensor:
    return torch.empty_like(x, dtype=dtype, memory_format=torch.contiguous_format)


SOFTMAX = Op(
    schema="softmax(Tensor x, Tensor? mask, float scale, SymInt? diagonal, bool zero_masked,"
    " ScalarType? dtype) -> Tensor",
    fake=lambda x, mask, scale, diagonal, zero_masked, dtype: _empty(x, dtype),
    implementations=(
        Implementation("cuda", cuda.supports, cuda.softmax),
        triton_implementation(_TRITON, "softmax", _triton_forward),
        Implementation("reference", always, reference.softmax),
    ),
    cases=cases.forward_cases,
    minimum_bytes=forward_bytes,
    declined=cases.DECLINED,
)

SOFTMAX_BACKWARD = Op(
    schema="softmax_backward(Tensor dy, Tensor y, float scale, SymInt? diagonal, ScalarType? dtype)"
    " -> Tensor",
    fake=lambda dy, y, scale, diagonal, dtype: _empty(y, dtype),
    implementations=(
        Implementation("cuda", cuda.supports_backward, cuda.softmax_backward),
        triton_implementation(_TRITON, "softmax_backward", triton_row),
        Implementation("reference", always, reference.softmax_backward),
    ),
    cases=cases.backward_cases,
    functions=("softmax",),
    minimum_bytes=backward_bytes,
    declined=cases.DECLINED,
)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, mask, scale, diagonal, _, _ = inputs
    if mask is not None and ctx.needs_input_grad[1]:
        raise UnsupportedError(
            "titan::softmax has no gradient for the mask; titan_kernels.ops.softmax() computes one, "
            "or pass mask.detach()"
        )
    ctx.save_for_backward(output)
    ctx.scale, ctx.diagonal, ctx.dtype = scale, diagonal, x.dtype


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    (y,) = ctx.saved_tensors
    dtype = None if y.dtype == ctx.dtype else ctx.dtype
    return SOFTMAX_BACKWARD(dy, y, ctx.scale, ctx.diagonal, dtype), None, None, None, None, None


SOFTMAX.register_autograd(_backward, _save)
