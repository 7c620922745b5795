"""Checks of the arguments of :func:`titan_kernels.ops.cross_entropy` and its vocabulary-parallel kin."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from titan_kernels.checks import described, device_problems, is_float, raise_problems

__all__ = ["Reduction", "check", "check_inplace", "check_options", "check_per_row", "check_rows"]

Reduction: TypeAlias = Literal["mean", "sum", "none"]
_INDEX_DTYPES = (torch.int32, torch.int64)


def check(
    logits: Tensor,
    target: Tensor,
    label_smoothing: float,
    z_loss: float,
    softcap: float | None,
    reduction: str,
    divisor: float | Tensor | None,
) -> None:
    """All problems of a call at once.

    Raises:
        ValueError: Says all of them.
    """
    raise_problems(
        _rows(logits, target) + _options(label_smoothing, z_loss, softcap) + _reduction(reduction, divisor)
    )


def check_rows(logits: Tensor, target: Tensor) -> None:
    """Shapes and dtypes only; raises like :func:`check`."""
    raise_problems(_rows(logits, target))


def check_per_row(target: Tensor, dtype: torch.dtype, **tensors: Tensor) -> None:
    """Whether the tensors have a number of that dtype for each target; raises like :func:`check`.

    A kernel reads them by the number of the row.
    """
    raise_problems(
        [
            f"{name} ({described(x)}): it must be {dtype} and have the target's shape {tuple(target.shape)}"
            for name, x in tensors.items()
            if x.shape != target.shape or x.dtype != dtype
        ]
        + device_problems(target=target, **tensors)
    )


def check_options(label_smoothing: float = 0.0, z_loss: float = 0.0, softcap: float | None = None) -> None:
    """Ranges of the options only; raises like :func:`check`."""
    raise_problems(_options(label_smoothing, z_loss, softcap))


def check_inplace(logits: Tensor) -> None:
    """Whether the memory of the logits may be overwritten by their gradient.

    Raises:
        ValueError: They are a leaf that requires a gradient, a view of one, or not contiguous.
    """
    owner = logits if logits._base is None else logits._base
    problems = []
    if owner.is_leaf and owner.requires_grad:
        problems.append(
            "inplace_gradient (True): the logits are a leaf that requires a gradient, or a view of one, and "
            "would lose their values; leave the option out, or pass the output of an operator"
        )
    if not logits.is_contiguous():
        problems.append(
            f"inplace_gradient (True): logits with strides {logits.stride()} don't have memory of their own; "
            "pass contiguous logits (shift the targets rather than slice the logits)"
        )
    raise_problems(problems)


def _rows(logits: Tensor, target: Tensor) -> list[str]:
    problems = []
    if logits.dim() == 0 or not is_float(logits.dtype) or logits.shape[-1] == 0:
        problems.append(
            f"logits ({described(logits)}): they need rows (..., V) in fp16, bf16, fp32 or float64"
        )
    elif target.shape != logits.shape[:-1]:
        problems.append(
            f"target (shape {tuple(target.shape)}): it must have the shape {tuple(logits.shape[:-1])}, that "
            "of the logits without their last dimension"
        )
    if target.dtype not in _INDEX_DTYPES:
        problems.append(f"target ({target.dtype}): it must hold class indices, int64 or int32")
    return problems + device_problems(logits=logits, target=target)


def _options(label_smoothing: float, z_loss: float, softcap: float | None) -> list[str]:
    problems = []
    if not 0.0 <= label_smoothing <= 1.0:
        problems.append(f"label_smoothing ({label_smoothing}): it must be from 0 to 1")
    if not z_loss >= 0.0:
        problems.append(f"z_loss ({z_loss}): it must not be negative")
    if softcap is not None and not 0.0 < softcap < math.inf:
        problems.append(f"softcap ({softcap}): it must be positive and finite; None turns it off")
    return problems


def _reduction(reduction: str, divisor: float | Tensor | None) -> list[str]:
    problems = []
    if reduction not in get_args(Reduction):
        problems.append(f"reduction ({reduction!r}): it must be 'mean', 'sum' or 'none'")
    if divisor is not None and reduction != "mean":
        problems.append(f"divisor: reduction ({reduction!r}) divides by nothing; use 'mean' or leave it out")
    if isinstance(divisor, Tensor):
        if divisor.dim() != 0:
            problems.append(f"divisor (shape {tuple(divisor.shape)}): it must be a number or a 0-dim tensor")
    elif divisor is not None and not divisor > 0:
        problems.append(f"divisor ({divisor}): it must be positive")
    return problems
