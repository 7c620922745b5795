"""The exact results of a dropout whose random mask is not known: it is read off the results."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from titan_bench.errors import VerificationError
from titan_kernels.testing import Truth

__all__ = ["backward_truth", "forward_truth"]

_SHARE_TOLERANCE = 0.01  # kept and dropped elements that round to one number are told apart by chance


def forward_truth(args: tuple[Any, ...], got: list[Tensor]) -> Truth:
    """For ``dropout(x + bias) + residual``.

    Args:
        args: Of ``titan::bias_dropout_residual``.
        got: The result to check.

    Raises:
        VerificationError: The share of dropped elements is wrong.
    """
    x, bias, residual, _, _, p = args
    dropped = torch.zeros_like(x, dtype=torch.float64) if residual is None else residual.double()
    kept = (x.double() if bias is None else x.double() + bias.double()) / (1.0 - p) + dropped
    return _truth([_nearest(got[0], kept, dropped, p)], got)


def backward_truth(args: tuple[Any, ...], got: list[Tensor]) -> Truth:
    """For the gradients of x and of the bias, if there is one; see :func:`forward_truth`."""
    dy, bias, _, _, p, *_ = args
    kept = dy.double() / (1.0 - p)
    dx = _nearest(got[0], kept, torch.zeros_like(kept), p)
    return _truth([dx] if bias is None else [dx, dx.flatten(0, -2).sum(0)], got)


def _nearest(got: Tensor, kept: Tensor, dropped: Tensor, p: float) -> Tensor:
    """The nearer one of what an element is when it is kept and when it is dropped."""
    wide = got.double()
    stays = (wide - kept).abs() < (wide - dropped).abs()
    share = float(stays.double().mean())
    spread = 5.0 * (p * (1.0 - p) / max(1, got.numel())) ** 0.5
    if abs(share - (1.0 - p)) > _SHARE_TOLERANCE + spread:
        raise VerificationError(f"{1.0 - share:.1%} of the elements are dropped, not {p:.1%}")
    return torch.where(stays, kept, dropped)


def _truth(exact: list[Tensor], got: list[Tensor]) -> Truth:
    """With the rounded exact results in place of the reference's, which has another mask."""
    return Truth(exact, [each.to(x.dtype) for each, x in zip(exact, got, strict=False)])
