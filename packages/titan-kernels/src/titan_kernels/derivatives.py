"""First derivatives that have no derivative themselves, and say so.

A kernel's backward is an operator without a formula of its own.  Where a graph of gradients is recorded
(``create_graph=True``), PyTorch would leave that operator's part out of the second derivative.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils import _pytree as pytree

from titan_kernels.errors import UnsupportedError

__all__ = ["once", "refuse_tangents"]


def once(op: str, backward: Callable[..., Any]) -> Callable[..., Any]:
    """A backward whose results raise when somebody differentiates them, and only then.

    ``torch.autograd.function.once_differentiable`` raises only where the incoming gradient is differentiable;
    the results depend on what the forward saved as well.

    Args:
        op: The operator's name, for the error.
        backward: As for ``torch.library.register_autograd``.
    """

    @functools.wraps(backward)
    def wrapped(ctx: Any, *grads: Any) -> Any:
        if not torch.is_grad_enabled():
            return backward(ctx, *grads)
        kept = _Context(ctx)
        with torch.no_grad():
            results = backward(kept, *grads)
        sources = [x for x in (*kept.saved_tensors, *grads) if x is not None and x.requires_grad]
        if not sources:
            return results
        return pytree.tree_map_only(Tensor, lambda x: _NoSecond.apply(x.detach(), op, *sources), results)

    return wrapped


def refuse_tangents(op: str, *arguments: Any) -> None:
    """Forward mode finds no rule for an operator of ``torch.library`` and would take its tangent as zero.

    Args:
        op: The operator's name, for the error.
        arguments: Of a call, while a level of forward mode is active.

    Raises:
        UnsupportedError: A tensor among them has a tangent.
    """
    tensors = [x for x in pytree.tree_leaves(arguments) if isinstance(x, Tensor)]
    if any(forward_ad.unpack_dual(x).tangent is not None for x in tensors):
        raise UnsupportedError(
            f"titan::{op} has no forward-mode derivative; use reverse mode, or PyTorch's own operators"
        )


class _Context:
    """A backward's context that unpacks the saved tensors once: checkpointing allows no more."""

    def __init__(self, ctx: Any) -> None:
        self._ctx = ctx

    @functools.cached_property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        return tuple(self._ctx.saved_tensors)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)


class _NoSecond(torch.autograd.Function):
    """Depends on the sources of a gradient, so that a search for theirs comes by."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, op: str, *_sources: Tensor) -> Tensor:
        ctx.op = op
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        raise UnsupportedError(
            f"titan::{ctx.op} has no second derivative; use PyTorch's own operators in the part of a model "
            "that is differentiated twice"
        )
