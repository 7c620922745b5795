"""The table of the operators' counterparts elsewhere, and how to call them with an operator's arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from titan_bench.kernels import eager, liger
from titan_bench.kernels.dropout import backward_truth, forward_truth
from titan_bench.kernels.errors import NoCounterpartError
from titan_kernels.testing import Truth

__all__ = ["PEERS", "Derivative", "Peer"]

# The backward operators get 1 / RMS or 1 / deviation instead; their cases are made with this one.
_EPS = 1e-5


@dataclass(frozen=True)
class Derivative:
    """The backward of a function is what counts; its forward runs outside of the timing.

    Args:
        arguments: Of the function.
        by: Positions of the arguments to differentiate by.
        grads: Of each of the function's outputs; none for those that get none.
    """

    arguments: tuple[Any, ...]
    by: tuple[int, ...]
    grads: tuple[Tensor | None, ...]


@dataclass(frozen=True)
class Peer:
    """An operator's counterparts.

    They return the first of the operator's results: those that a user gets to see.

    Args:
        eager: PyTorch's.
        liger: liger-kernel's, with the same arguments.
        arguments: The counterparts' arguments from the operator's; the same where absent.  What a model
            prepares once, such as a mask, is prepared here.
        truth: The exact results, from the operator's arguments and a counterpart's results, where these
            are random.
    """

    eager: Callable[..., Any]
    liger: Callable[..., Any] | None = None
    arguments: Callable[..., tuple[Any, ...] | Derivative] = lambda *args: args
    truth: Callable[[tuple[Any, ...], list[Tensor]], Truth] | None = None


def _given(*tensors: Tensor | None) -> tuple[int, ...]:
    return tuple(i for i, each in enumerate(tensors) if each is not None)


def _rms_norm_backward(
    dy: Tensor, x: Tensor, weight: Tensor | None, _rstd: Tensor, dsum: Tensor | None, _mask: object
) -> Derivative:
    """The sum with a residual of zeros is ``x``, and ``dsum`` is its gradient by other ways."""
    arguments = (x, torch.zeros_like(x), weight, _EPS)
    return Derivative(arguments, _given(x, None, weight), (dy, dsum))


def _layer_norm_backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    _stats: Tensor,
    dsum: Tensor | None,
    _mask: object,
) -> Derivative:
    arguments = (x, torch.zeros_like(x), weight, bias, _EPS)
    return Derivative(arguments, _given(x, None, weight, bias), (dy, dsum))


def _glu_backward(dy: Tensor, gate: Tensor, up: Tensor | None, kind: str, _mask: object) -> Derivative:
    return Derivative((gate, up, kind), _given(gate, up), (dy,))


def _softmax(
    x: Tensor, mask: Tensor | None, scale: float, diagonal: int | None, zero: bool, dtype: torch.dtype | None
) -> tuple[Any, ...]:
    hidden = None
    if mask is not None and mask.dtype == torch.bool:
        hidden = ~mask
    if diagonal is not None:
        later = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).triu(diagonal + 1)
        hidden = later if hidden is None else hidden | later
    bias = mask if mask is not None and mask.dtype != torch.bool else None
    empty = hidden.all(-1, keepdim=True) if zero and hidden is not None else None
    return x, bias, hidden, empty, scale, dtype


def _softmax_backward(
    dy: Tensor, y: Tensor, scale: float, _diagonal: int | None, dtype: torch.dtype | None
) -> tuple[Any, ...]:
    """Where the diagonal hides a key, its probability is 0 already."""
    if dtype is not None:
        raise NoCounterpartError("not in the shapes that are timed: a result of another dtype")
    return dy, y, scale


def _cross_entropy(
    logits: Tensor,
    target: Tensor,
    ignore_index: int,
    smoothing: float,
    z_loss: float,
    softcap: float,
    *_: Any,
) -> tuple[Any, ...]:
    if z_loss or softcap:
        raise NoCounterpartError("PyTorch has no z-loss and no soft-cap")
    return logits, target, ignore_index, smoothing


def _cross_entropy_backward(
    grad: Tensor, logits: Tensor, target: Tensor, _lse: Tensor, _first: int, classes: int, *options: Any
) -> Derivative:
    if classes != logits.shape[-1]:
        raise NoCounterpartError("PyTorch has no gradient of a shard's logits")
    return Derivative(_cross_entropy(logits, target, *options), (0,), (grad,))


def _embedding_backward(
    grad: Tensor, indices: Tensor, rows: int, padding: int, scale: float, fp32: bool
) -> Derivative:
    if fp32:
        raise NoCounterpartError("PyTorch rounds this gradient to the dtype of the table")
    table = grad.new_zeros(rows, grad.shape[-1])
    return Derivative((indices, table, padding, scale), (1,), (grad,))


def _rope(
    q: Tensor,
    k: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None,
    interleaved: bool,
    inverse: bool,
) -> tuple[Any, ...]:
    """Tables by token and element, as models compute them once for all layers."""

    def widened(table: Tensor) -> Tensor:
        rows = table[: q.shape[1]].unsqueeze(0) if positions is None else table[positions.long()]
        rows = rows if rows.dim() == 3 else rows.unsqueeze(0)
        wide = rows.repeat_interleave(2, -1) if interleaved else torch.cat((rows, rows), -1)
        return wide.to(q.dtype).unsqueeze(2)

    return q, k, widened(cos), widened(-sin if inverse else sin), interleaved


def _dropout(
    x: Tensor, bias: Tensor | None, residual: Tensor | None, _seed: Tensor, _offset: int, p: float
) -> tuple[Any, ...]:
    return x, bias, residual, p


def _dropout_backward(
    dy: Tensor, bias: Tensor | None, _seed: Tensor, _offset: int, p: float, *_: object
) -> Derivative:
    return Derivative((torch.zeros_like(dy), bias, None, p), _given(dy, bias), (dy,))


# By operator; a text says why there is no counterpart.
PEERS: Mapping[str, Peer | str] = {
    "rms_norm": Peer(eager.rms_norm, liger.rms_norm),
    "add_rms_norm": Peer(eager.add_rms_norm, liger.add_rms_norm),
    "rms_norm_backward": Peer(eager.add_rms_norm, liger.add_rms_norm, _rms_norm_backward),
    "layer_norm": Peer(eager.layer_norm, liger.layer_norm),
    "add_layer_norm": Peer(eager.add_layer_norm, liger.add_layer_norm),
    "layer_norm_backward": Peer(eager.add_layer_norm, liger.add_layer_norm, _layer_norm_backward),
    "glu": Peer(eager.glu, liger.glu),
    "glu_backward": Peer(eager.glu, liger.glu, _glu_backward),
    "relu2": Peer(eager.relu2, liger.relu2),
    "relu2_backward": Peer(eager.relu2, liger.relu2, lambda dy, x: Derivative((x,), (0,), (dy,))),
    "softmax": Peer(eager.softmax, liger.softmax, _softmax),
    "softmax_backward": Peer(eager.softmax_backward, None, _softmax_backward),
    "cross_entropy": Peer(eager.cross_entropy, liger.cross_entropy, _cross_entropy),
    "cross_entropy_backward": Peer(
        eager.cross_entropy, liger.cross_entropy_for_gradient, _cross_entropy_backward
    ),
    "cross_entropy_backward_inplace": Peer(
        eager.cross_entropy, liger.cross_entropy_for_gradient, _cross_entropy_backward
    ),
    "cross_entropy_partial": "PyTorch has a loss of a shard of the vocabulary only for DTensors",
    "embedding": Peer(eager.embedding),
    "embedding_backward": Peer(eager.embedding, None, _embedding_backward),
    "rope": Peer(eager.rope, liger.rope, _rope),
    "rope_": Peer(eager.rope, liger.rope, _rope),
    "bias_dropout_residual": Peer(eager.bias_dropout_residual, None, _dropout, forward_truth),
    "bias_dropout_residual_backward": Peer(
        eager.bias_dropout_residual, None, _dropout_backward, backward_truth
    ),
    "reduce": Peer(eager.reduce),
    "var_mean": Peer(eager.var_mean),
    "multi_tensor_norm": Peer(eager.multi_tensor_norm),
    "multi_tensor_cast": Peer(eager.multi_tensor_cast),
}
