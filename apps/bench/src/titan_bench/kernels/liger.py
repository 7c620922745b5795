"""Counterparts of the operators in liger-kernel (https://github.com/linkedin/Liger-Kernel), if installed.

They take the arguments of those in :mod:`titan_bench.kernels.eager`.  Some overwrite their arguments; the
benchmark restores these before every call.
"""

from __future__ import annotations

import importlib
from types import ModuleType

from torch import Tensor

from titan_bench.kernels.errors import NoCounterpartError

__all__ = [
    "add_layer_norm",
    "add_rms_norm",
    "cross_entropy",
    "cross_entropy_for_gradient",
    "glu",
    "layer_norm",
    "relu2",
    "rms_norm",
    "rope",
    "softmax",
]


def _liger() -> ModuleType:
    try:
        return importlib.import_module("liger_kernel.transformers.functional")
    except ImportError as error:
        if error.name is not None and not error.name.startswith("liger_kernel"):
            raise
        raise NoCounterpartError("liger-kernel is not installed (pip install liger-kernel)") from None


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """With Llama's rounding, its default."""
    y: Tensor = _liger().liger_rms_norm(x, weight, eps)
    return y


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """The normalised sum and the sum."""
    y, total = _liger().liger_fused_add_rms_norm(x, residual, weight, eps)
    return y, total


def layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """Layer normalisation."""
    y: Tensor = _liger().liger_layer_norm(x, weight, bias, eps)
    return y


def add_layer_norm(
    x: Tensor, residual: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """The sum is PyTorch's."""
    total = x + residual
    return layer_norm(total, weight, bias, eps), total


def glu(gate: Tensor, up: Tensor | None, kind: str) -> Tensor:
    """SwiGLU or GeGLU."""
    if kind == "gelu":
        raise NoCounterpartError("liger-kernel has no GeGLU with the error function")
    first, second = gate.chunk(2, dim=-1) if up is None else (gate, up)
    functional = _liger()
    function = functional.liger_swiglu if kind == "silu" else functional.liger_geglu
    y: Tensor = function(first, second)
    return y


def relu2(x: Tensor) -> Tensor:
    """Squared ReLU, in the releases that have it."""
    function = getattr(_liger(), "liger_relu_squared", None)
    if function is None:
        raise NoCounterpartError("this release of liger-kernel has no squared ReLU")
    y: Tensor = function(x)
    return y


def softmax(
    x: Tensor, bias: Tensor | None, hidden: Tensor | None, empty: Tensor | None, scale: float, dtype: object
) -> Tensor:
    """Without masks; the scale is PyTorch's."""
    if any(each is not None for each in (bias, hidden, empty, dtype)):
        raise NoCounterpartError("liger-kernel has no masked softmax")
    y: Tensor = _liger().liger_softmax(x * scale)
    return y


def cross_entropy(logits: Tensor, target: Tensor, ignore_index: int, label_smoothing: float) -> Tensor:
    """Only the loss, since no gradient is asked for."""
    loss: Tensor = _liger().liger_cross_entropy(
        logits, target, ignore_index=ignore_index, label_smoothing=label_smoothing, reduction="none"
    )
    return loss


def cross_entropy_for_gradient(*_: object) -> Tensor:
    """A time of its backward alone would flatter it."""
    _liger()
    raise NoCounterpartError("liger-kernel computes this gradient in its forward")


def rope(q: Tensor, k: Tensor | None, cos: Tensor, sin: Tensor, interleaved: bool) -> tuple[Tensor, Tensor]:
    """Of whole heads in halves."""
    if interleaved or k is None or cos.shape[-1] != q.shape[-1]:
        raise NoCounterpartError("liger-kernel rotates queries and keys together, whole heads, in halves")
    rotated = _liger().liger_rope(q.transpose(1, 2), k.transpose(1, 2), cos.squeeze(2), sin.squeeze(2))
    first, second = (each.transpose(1, 2) for each in rotated)
    return first, second
