"""Gated activations and the squared ReLU in plain PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from titan_kernels.numerics import compute_dtype

__all__ = ["glu", "glu_backward", "relu2", "relu2_backward"]

_TANH_SCALE, _TANH_CUBIC = 2.0 * math.sqrt(2.0 / math.pi), 0.044715


def _silu(x: Tensor) -> tuple[Tensor, Tensor]:
    s = torch.sigmoid(x)
    return x * s, s * (1.0 + x * (1.0 - s))


def _gelu_tanh(x: Tensor) -> tuple[Tensor, Tensor]:
    """(1 + tanh(u)) / 2 is sigmoid(2 u), which keeps its digits where tanh(u) is near -1."""
    s = torch.sigmoid(_TANH_SCALE * x * (1.0 + _TANH_CUBIC * x * x))
    return x * s, s + x * s * (1.0 - s) * _TANH_SCALE * (1.0 + 3.0 * _TANH_CUBIC * x * x)


def _gelu(x: Tensor) -> tuple[Tensor, Tensor]:
    """With erfc, and not 1 + erf, for the same reason."""
    below = 0.5 * torch.special.erfc(x * -math.sqrt(0.5))
    return x * below, below + x * torch.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


# Value and slope at x.
_ACTIVATIONS: dict[str, Callable[[Tensor], tuple[Tensor, Tensor]]] = {
    "silu": _silu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
}


def _halves(gate: Tensor, up: Tensor | None) -> tuple[Tensor, Tensor]:
    """Gate and up in the dtype to compute in."""
    first, second = gate.chunk(2, dim=-1) if up is None else (gate, up)
    wide = compute_dtype(gate.dtype)
    return first.to(wide), second.to(wide)


def glu(gate: Tensor, up: Tensor | None, kind: str) -> Tensor:
    """See :func:`titan_kernels.ops.swiglu`; ``kind`` is silu, gelu or gelu_tanh."""
    g, u = _halves(gate, up)
    return (_ACTIVATIONS[kind](g)[0] * u).to(gate.dtype).contiguous()


def glu_backward(
    dy: Tensor, gate: Tensor, up: Tensor | None, kind: str, output_mask: Sequence[bool]
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of gate and up, as far as ``output_mask`` wants them, or of the packed tensor as a whole."""
    g, u = _halves(gate, up)
    value, slope = _ACTIVATIONS[kind](g)
    grad = dy.to(g.dtype)
    dgate, dup = ((grad * each).to(gate.dtype).contiguous() for each in (u * slope, value))
    if up is None:
        return torch.cat((dgate, dup), dim=-1), None
    return dgate if output_mask[0] else None, dup if output_mask[1] else None


def relu2(x: Tensor) -> Tensor:
    """See :func:`titan_kernels.ops.relu2`."""
    return torch.relu(x.to(compute_dtype(x.dtype))).square().to(x.dtype).contiguous()


def relu2_backward(dy: Tensor, x: Tensor) -> Tensor:
    """Gradient of x."""
    wide = compute_dtype(x.dtype)
    return (dy.to(wide) * 2.0 * torch.relu(x.to(wide))).to(x.dtype).contiguous()
