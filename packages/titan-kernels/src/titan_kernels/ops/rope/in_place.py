"""Autograd for the rotation in place, which torch.library has no formula for.

The gradient needs neither the old nor the new values, so nothing is saved but the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from titan_kernels.errors import UnsupportedError
from titan_kernels.registry import Op

__all__ = ["autograd_in_place"]


def autograd_in_place(rope: Op, rope_: Op) -> Callable[..., None]:
    """The kernel of ``titan::rope_`` at PyTorch's Autograd key.

    Args:
        rope: The operator out of place, for the gradient.
        rope_: The operator in place.
    """

    def below_autograd(q: Tensor, k: Tensor | None, *rest: Any) -> None:
        with torch._C._AutoDispatchBelowAutograd():
            rope_(q, k, *rest)
        for each in (q, k):
            if each is not None:
                torch.autograd.graph.increment_version(each)

    class InPlace(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, *rest: Any) -> Tensor:
            cos, sin, positions, ctx.interleaved, ctx.inverse = rest
            ctx.save_for_backward(cos, sin, positions)
            ctx.mark_dirty(x)
            below_autograd(x, None, *rest)
            return x

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
            dx, _ = rope(grads[0], None, *ctx.saved_tensors, ctx.interleaved, not ctx.inverse)
            return (dx, *(None,) * 5)

    def kernel(q: Tensor, k: Tensor | None, *rest: Any) -> None:
        tensors = [each for each in (q, k) if each is not None]
        if not (torch.is_grad_enabled() and any(each.requires_grad for each in tensors)):
            below_autograd(q, k, *rest)
            return
        _refuse_leaves(tensors)
        # One by one: autograd allows a function to change one view in place, and both may be views.
        for each in tensors:
            if each.requires_grad:
                InPlace.apply(each, *rest)
            else:
                below_autograd(each, None, *rest)

    return kernel


def _refuse_leaves(tensors: Iterable[Tensor]) -> None:
    """Before anything is written: PyTorch says so afterwards only."""
    owners = (each if each._base is None else each._base for each in tensors if each.requires_grad)
    if any(owner.is_leaf for owner in owners):
        raise UnsupportedError(
            "inplace (True): a leaf that requires a gradient, or a view of one, cannot be rotated in place; "
            "leave the option out"
        )
