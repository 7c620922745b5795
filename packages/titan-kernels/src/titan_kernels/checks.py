"""Checks of arguments that all operators share: each gives its problems in words, to be raised together."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

__all__ = [
    "described",
    "device_problems",
    "eps_problems",
    "float_problems",
    "is_float",
    "like_problems",
    "parameter_problems",
    "raise_problems",
    "row_problems",
]

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_NAMES = "fp16, bf16, fp32 or float64"


def raise_problems(problems: Iterable[str]) -> None:
    """Raise a ``ValueError`` with all problems, if there are any."""
    if found := list(problems):
        raise ValueError("; ".join(found))


def is_float(dtype: torch.dtype) -> bool:
    """Whether some implementation of every operator computes in this dtype; none do in fp8."""
    return dtype in _FLOATS


def described(x: Tensor) -> str:
    """Dtype and shape, as messages give them."""
    return f"{x.dtype}, shape {tuple(x.shape)}"


def float_problems(**tensors: Tensor) -> list[str]:
    """Tensors of dtypes that no implementation computes in."""
    return [
        f"{name} ({described(x)}): it must be floating point, {_NAMES}"
        for name, x in tensors.items()
        if not is_float(x.dtype)
    ]


def row_problems(name: str, x: Tensor, rows: str = "(..., D)") -> list[str]:
    """A tensor that has no rows of floating-point numbers."""
    if x.dim() > 0 and is_float(x.dtype):
        return []
    return [f"{name} ({described(x)}): it needs floating-point rows {rows}, {_NAMES}"]


def like_problems(name: str, x: Tensor | None, other: str, like: Tensor, *, fp32: bool = False) -> list[str]:
    """A tensor of another shape or dtype than its counterpart; with ``fp32`` it may have that dtype too."""
    if x is None or (x.shape == like.shape and x.dtype in (like.dtype, torch.float32 if fp32 else None)):
        return []
    rule = "; its dtype may also be torch.float32" if fp32 else ""
    return [f"{name} ({described(x)}): it must be like {other} ({described(like)}){rule}"]


def parameter_problems(name: str, parameter: Tensor | None, x: Tensor) -> list[str]:
    """A weight or bias that is not (D), in the dtype of the rows ``x`` or fp32."""
    if parameter is None or x.dim() == 0:
        return []
    found, columns = [], x.shape[-1]
    if tuple(parameter.shape) != (columns,):
        found.append(f"{name} (shape {tuple(parameter.shape)}): it must have the shape ({columns},)")
    if parameter.dtype not in (x.dtype, torch.float32):
        found.append(f"{name} ({parameter.dtype}): it must have the dtype of x ({x.dtype}) or torch.float32")
    return found


def device_problems(**tensors: Tensor | None) -> list[str]:
    """Tensors on another device than the first."""
    given = {name: x for name, x in tensors.items() if x is not None}
    (first, x), *others = given.items()
    return [
        f"{name} (on {other.device}): it must be on the device of {first} ({x.device})"
        for name, other in others
        if other.device != x.device
    ]


def eps_problems(eps: float) -> list[str]:
    """A number that may leave nothing but NaN to take the root of."""
    return [] if eps >= 0.0 else [f"eps ({eps}): it must not be negative"]
