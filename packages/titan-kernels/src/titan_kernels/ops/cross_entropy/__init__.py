"""Cross-entropy between logits and class indices, with label smoothing, z-loss and soft-capped logits.

With ``z = softcap * tanh(logits / softcap)`` (or the logits themselves), ``lse = logsumexp(z)`` and smoothing
``s``, a row's loss is ``lse - (1 - s) * z[target] - s * mean(z) + z_loss * lse^2``.  Label smoothing: Szegedy
et al., arXiv:1512.00567; z-loss: Chowdhery et al., arXiv:2204.02311; soft-capping: Gemma 2,
arXiv:2408.00118; online softmax: Milakov and Gimelshein, arXiv:1805.02867.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, overload

import torch
from torch import Tensor

from titan_kernels.ops.cross_entropy import checks
from titan_kernels.ops.cross_entropy.operators import CROSS_ENTROPY
from titan_kernels.ops.cross_entropy.vocab_parallel import (
    PartialCrossEntropy,
    cross_entropy_from_partial,
    cross_entropy_partial,
    cross_entropy_shard_gradient,
    merge_partials,
)

__all__ = [
    "CrossEntropy",
    "PartialCrossEntropy",
    "cross_entropy",
    "cross_entropy_from_partial",
    "cross_entropy_partial",
    "cross_entropy_shard_gradient",
    "merge_partials",
]


class CrossEntropy(NamedTuple):
    """What :func:`cross_entropy` returns with ``metrics``; only the loss has a gradient.

    Attributes:
        loss: As without ``metrics``, z-loss included.
        z_loss: The part of the loss that is z-loss, reduced in the same way.
        lse: Log-sum-exp per row, shaped like the target; 0 in ignored rows.
    """

    loss: Tensor
    z_loss: Tensor
    lse: Tensor


@overload
def cross_entropy(
    logits: Tensor,
    target: Tensor,
    *,
    ignore_index: int = ...,
    label_smoothing: float = ...,
    z_loss: float = ...,
    softcap: float | None = ...,
    reduction: checks.Reduction = ...,
    divisor: float | Tensor | None = ...,
    inplace_gradient: bool = ...,
    metrics: Literal[False] = ...,
) -> Tensor: ...
@overload
def cross_entropy(
    logits: Tensor,
    target: Tensor,
    *,
    ignore_index: int = ...,
    label_smoothing: float = ...,
    z_loss: float = ...,
    softcap: float | None = ...,
    reduction: checks.Reduction = ...,
    divisor: float | Tensor | None = ...,
    inplace_gradient: bool = ...,
    metrics: Literal[True],
) -> CrossEntropy: ...
def cross_entropy(
    logits: Tensor,
    target: Tensor,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float | None = None,
    reduction: checks.Reduction = "mean",
    divisor: float | Tensor | None = None,
    inplace_gradient: bool = False,
    metrics: bool = False,
) -> Tensor | CrossEntropy:
    """Cross-entropy over the last dimension, computed in fp32.

    The forward reads the logits once and the backward reads them once more and writes their gradient:
    neither softmax nor an fp32 copy is kept.

    **Out-of-range targets.** On a CPU the reference raises.  On a GPU, where a check would wait for the
    device, the loss of such a row is NaN and so is its gradient.

    **In-place gradient.** With ``inplace_gradient`` the backward writes the gradient over the logits, which
    saves memory of their size.  From then on every tensor that shares this memory, views included,
    holds the gradient.  Operators that kept the logits for their own backward raise PyTorch's error about
    variables modified in place; so does a second backward.  Leaves that require gradients are refused,
    because their values would be lost.  Under ``torch.compile`` the option changes nothing: the compiler
    plans the memory itself.

    Args:
        logits: (..., V), fp16, bf16, fp32 or float64.
        target: (...), class indices, int32 or int64.
        ignore_index: Rows with this target have no loss and no gradient, and don't count for the mean.
        label_smoothing: Share of the target that is spread over all classes, from 0 to 1.
        z_loss: Weight of ``lse^2``, which keeps the logits' normaliser near 1.
        softcap: Largest absolute logit, by ``softcap * tanh(logits / softcap)``; no cap when absent.
        reduction: ``"mean"`` over the rows that count (NaN without one), ``"sum"``, or ``"none"``.
        divisor: For ``"mean"``: divide by this number or 0-dim tensor instead, such as the number of rows
            that count over all ranks.
        inplace_gradient: Whether the backward may overwrite the logits, see above.
        metrics: Return :class:`CrossEntropy` instead of the loss alone.

    Returns:
        The loss, fp32 (float64 for float64 logits): a scalar, or shaped like the target for ``"none"``.

    Raises:
        ValueError: Shapes, dtypes or options do not fit together, or ``inplace_gradient`` would destroy
            a leaf or logits that are not contiguous.
        IndexError: A target is out of range, on a CPU.
    """
    checks.check(logits, target, label_smoothing, z_loss, softcap, reduction, divisor)
    inplace_gradient = inplace_gradient and not torch.compiler.is_compiling()
    if inplace_gradient:
        checks.check_inplace(logits)
    rows, lse = CROSS_ENTROPY(
        logits, target.long(), ignore_index, label_smoothing, z_loss, softcap or 0.0, inplace_gradient
    )
    if reduction == "mean" and divisor is None:
        divisor = (target != ignore_index).sum()
    loss = _reduce(rows, reduction, divisor)
    if not metrics:
        return loss
    return CrossEntropy(loss, _reduce(z_loss * lse * lse, reduction, divisor), lse)


def _reduce(rows: Tensor, reduction: checks.Reduction, divisor: float | Tensor | None) -> Tensor:
    if reduction == "none":
        return rows
    return rows.sum() if divisor is None else rows.sum() / divisor
