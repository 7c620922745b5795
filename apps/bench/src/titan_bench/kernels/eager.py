"""PyTorch's own counterparts of the operators, written as its documentation and Hugging Face's models do."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from titan_bench.kernels.errors import NoCounterpartError

__all__ = [
    "add_layer_norm",
    "add_rms_norm",
    "bias_dropout_residual",
    "cross_entropy",
    "embedding",
    "glu",
    "layer_norm",
    "multi_tensor_cast",
    "multi_tensor_norm",
    "reduce",
    "relu2",
    "rms_norm",
    "rope",
    "softmax",
    "softmax_backward",
    "var_mean",
]


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """PyTorch has a fused kernel for it."""
    return F.rms_norm(x, x.shape[-1:], weight, eps)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """The normalised sum and the sum."""
    total = x + residual
    return rms_norm(total, weight, eps), total


def layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """PyTorch has a fused kernel for it."""
    return F.layer_norm(x, x.shape[-1:], weight, bias, eps)


def add_layer_norm(
    x: Tensor, residual: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor]:
    """The normalised sum and the sum."""
    total = x + residual
    return layer_norm(total, weight, bias, eps), total


def glu(gate: Tensor, up: Tensor | None, kind: str) -> Tensor:
    """As the feed-forward layers of Llama (silu) and Gemma (gelu)."""
    first, second = gate.chunk(2, dim=-1) if up is None else (gate, up)
    if kind == "silu":
        return F.silu(first) * second
    return F.gelu(first, approximate="tanh" if kind == "gelu_tanh" else "none") * second


def relu2(x: Tensor) -> Tensor:
    """Squared ReLU."""
    return F.relu(x).square()


def softmax(
    x: Tensor,
    bias: Tensor | None,
    hidden: Tensor | None,
    empty: Tensor | None,
    scale: float,
    dtype: torch.dtype | None,
) -> Tensor:
    """Of attention scores.

    Args:
        x: The scores.
        bias: Added to the scaled scores.
        hidden: True where a key is not seen.
        empty: True for rows without a key, which become 0.
        scale: Of the scores.
        dtype: Of the result.
    """
    scores = x * scale
    if bias is not None:
        scores = scores + bias
    if hidden is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    y = F.softmax(scores, -1, dtype=dtype)
    return y if empty is None else y.masked_fill(empty, 0.0)


def softmax_backward(dy: Tensor, y: Tensor, scale: float) -> Tensor:
    """What autograd runs for ``softmax(scale * x)``; called directly, for only its result is given."""
    dx: Tensor = torch.ops.aten._softmax_backward_data(dy, y, -1, y.dtype)
    return dx * scale


def cross_entropy(logits: Tensor, target: Tensor, ignore_index: int, label_smoothing: float) -> Tensor:
    """In fp32, as all trainers do: a loss in fp16 would have three digits."""
    return F.cross_entropy(
        logits.float(),
        target,
        ignore_index=ignore_index,
        label_smoothing=label_smoothing,
        reduction="none",
    )


def embedding(indices: Tensor, weight: Tensor, padding: int, scale: float) -> Tensor:
    """Scaled as in Gemma."""
    y = F.embedding(indices, weight, None if padding < 0 else padding)
    return y if scale == 1.0 else y * scale


def rope(q: Tensor, k: Tensor | None, cos: Tensor, sin: Tensor, interleaved: bool) -> tuple[Tensor, ...]:
    """As Hugging Face's Llama, or as GPT-J where pairs are neighbours.

    Args:
        q: (B, T, H, D).
        k: Likewise, or none.
        cos: (1 or B, T, 1, R) with a cosine per element of the rotated part, in the dtype of ``q``.
        sin: Likewise.
        interleaved: Pairs are neighbours.
    """
    return tuple(_rotate(x, cos, sin, interleaved) for x in (q, k) if x is not None)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    width = cos.shape[-1]
    part = x[..., :width]
    if interleaved:
        other = torch.stack((-part[..., 1::2], part[..., ::2]), -1).flatten(-2)
    else:
        first, second = part.chunk(2, -1)
        other = torch.cat((-second, first), -1)
    turned = part * cos + other * sin
    return turned if width == x.shape[-1] else torch.cat((turned, x[..., width:]), -1)


def bias_dropout_residual(x: Tensor, bias: Tensor | None, residual: Tensor | None, p: float) -> Tensor:
    """With PyTorch's own random mask, which its autograd keeps."""
    y = F.dropout(x if bias is None else x + bias, p)
    return y if residual is None else y + residual


def reduce(
    x: Tensor, kind: str, dims: Sequence[int], keepdim: bool, correction: float, dtype: torch.dtype | None
) -> Tensor:
    """One of PyTorch's reductions."""
    if dtype is not None:
        raise NoCounterpartError("not in the shapes that are timed: a result of another dtype")
    if kind in ("norm", "inf_norm"):
        order = 2.0 if kind == "norm" else torch.inf
        norm: Tensor = torch.linalg.vector_norm(x, order, tuple(dims), keepdim)
        return norm
    if kind == "var":
        return x.var(tuple(dims), correction=correction, keepdim=keepdim)
    result: Tensor = getattr(x, kind)(tuple(dims), keepdim)
    return result


def var_mean(
    x: Tensor, dims: Sequence[int], keepdim: bool, correction: float, dtype: torch.dtype | None
) -> tuple[Tensor, Tensor]:
    """Both in one pass, by Welford's algorithm."""
    if dtype is not None:
        raise NoCounterpartError("not in the shapes that are timed: results of another dtype")
    return torch.var_mean(x, tuple(dims), correction=correction, keepdim=keepdim)


def multi_tensor_norm(tensors: list[Tensor], _per_tensor: bool) -> Tensor:
    """As gradients are clipped."""
    return torch.nn.utils.get_total_norm(tensors)


def multi_tensor_cast(
    sources: list[Tensor], targets: list[Tensor], scale: Tensor | None, factor: float
) -> list[Tensor]:
    """As a loss scaler unscales gradients, and a copy; rounded in between."""
    whole = factor if scale is None else scale * factor
    read = sources if scale is None and factor == 1.0 else torch._foreach_mul(sources, whole)
    torch._foreach_copy_(targets, read)
    return targets
