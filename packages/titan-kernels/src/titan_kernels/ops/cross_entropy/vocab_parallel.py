"""Cross-entropy of logits whose vocabulary is split over ranks.

Each rank computes the parts of its shard; the parts of the whole vocabulary follow by reductions that are
the same on every rank, first of the maxima, then of sums::

    part = cross_entropy_partial(logits_shard, target, vocab_start)
    maximum = part.maximum.clone()
    dist.all_reduce(maximum, dist.ReduceOp.MAX, group)
    sums = part.rescaled(maximum).sums()
    dist.all_reduce(sums, group=group)
    whole = PartialCrossEntropy(maximum, *sums)
    loss, lse = cross_entropy_from_partial(whole, target, vocab_size)
    ...
    gradient = cross_entropy_shard_gradient(grad, logits_shard, target, lse, vocab_start, vocab_size)

Shoeybi et al., "Megatron-LM", arXiv:1909.08053, section 3.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from titan_kernels.numerics import compute_dtype
from titan_kernels.ops.cross_entropy import reference
from titan_kernels.ops.cross_entropy.checks import check_inplace, check_options, check_per_row, check_rows
from titan_kernels.ops.cross_entropy.operators import CROSS_ENTROPY_PARTIAL, gradient_of_logits

__all__ = [
    "PartialCrossEntropy",
    "cross_entropy_from_partial",
    "cross_entropy_partial",
    "cross_entropy_shard_gradient",
    "merge_partials",
]


class PartialCrossEntropy(NamedTuple):
    """What is known of each row from a part of the vocabulary; fp32 (float64), shaped like the target.

    Attributes:
        maximum: The largest logit.
        sum_exp: The sum of ``exp(logit - maximum)``.
        target_logit: The target's logit where it is in this part, else 0.
        total: The sum of the logits, for label smoothing.

    Ignored rows are all 0.
    """

    maximum: Tensor
    sum_exp: Tensor
    target_logit: Tensor
    total: Tensor

    def rescaled(self, maximum: Tensor) -> PartialCrossEntropy:
        """The same with ``sum_exp`` relative to another maximum, at least as large."""
        # Rows of -inf alone keep their sums: no difference is defined for them.
        scale = torch.where(self.maximum == maximum, 1.0, (self.maximum - maximum).exp())
        return self._replace(maximum=maximum, sum_exp=self.sum_exp * scale)

    def sums(self) -> Tensor:
        """(3, ...): what adds up over parts with one maximum, as one tensor for one all-reduce."""
        return torch.stack(self[1:])


def cross_entropy_partial(
    logits_shard: Tensor,
    target: Tensor,
    vocab_start: int,
    *,
    ignore_index: int = -100,
    softcap: float | None = None,
) -> PartialCrossEntropy:
    """The parts of a shard of the vocabulary, in one read of its logits; no gradient.

    Args:
        logits_shard: (..., V of the shard), fp16, bf16, fp32 or float64.
        target: (...), class indices in the whole vocabulary, int32 or int64.
        vocab_start: The class of the shard's first logit.
        ignore_index: As in :func:`titan_kernels.ops.cross_entropy`, like ``softcap``.
        softcap: Largest absolute logit; no cap when absent.

    Raises:
        ValueError: Shapes, dtypes or options do not fit together.
    """
    check_rows(logits_shard, target)
    check_options(softcap=softcap)
    parts = CROSS_ENTROPY_PARTIAL(
        logits_shard.detach(), target.long(), vocab_start, ignore_index, softcap or 0.0
    )
    return PartialCrossEntropy(*parts)


def merge_partials(partials: Sequence[PartialCrossEntropy]) -> PartialCrossEntropy:
    """The parts of all shards together: what all-reduces over the ranks compute.

    Raises:
        ValueError: There are none.
    """
    if not partials:
        raise ValueError("partials (none): a vocabulary has at least one shard")
    maximum = functools.reduce(torch.maximum, (part.maximum for part in partials))
    sums = torch.stack([part.rescaled(maximum).sums() for part in partials]).sum(0)
    return PartialCrossEntropy(maximum, *sums)


def cross_entropy_from_partial(
    partial: PartialCrossEntropy,
    target: Tensor,
    vocab_size: int,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Loss and log-sum-exp of each row; NaN where the target is out of range.

    Args:
        partial: The parts of the whole vocabulary.
        target: (...), as in :func:`cross_entropy_partial`.
        vocab_size: Classes of the whole vocabulary.
        ignore_index: Rows with this target have loss 0 and log-sum-exp 0.
        label_smoothing: Share of the target that is spread over all classes, from 0 to 1.
        z_loss: Weight of the squared log-sum-exp.

    Raises:
        ValueError: Shapes, dtypes or options do not fit together.
    """
    check_per_row(target, partial.maximum.dtype, **partial._asdict())
    check_options(label_smoothing, z_loss)
    return reference.finish(*partial, target, vocab_size, ignore_index, label_smoothing, z_loss)


def cross_entropy_shard_gradient(
    grad: Tensor,
    logits_shard: Tensor,
    target: Tensor,
    lse: Tensor,
    vocab_start: int,
    vocab_size: int,
    *,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    softcap: float | None = None,
    inplace_gradient: bool = False,
) -> Tensor:
    """Gradient of a shard's logits, in one read and one write; no communication.

    Args:
        grad: (...), the gradient of each row's loss, fp32 (float64 for float64 logits).
        logits_shard: As in :func:`cross_entropy_partial`, like ``target`` and ``vocab_start``.
        target: (...), class indices.
        lse: (...), log-sum-exp over the whole vocabulary, from :func:`cross_entropy_from_partial`.
        vocab_start: The class of the shard's first logit.
        vocab_size: Classes of the whole vocabulary.
        ignore_index: This and the following as they were in the forward.
        label_smoothing: Share of the target that is spread over all classes.
        z_loss: Weight of the squared log-sum-exp.
        softcap: Largest absolute logit.
        inplace_gradient: Write the gradient over the logits, see :func:`titan_kernels.ops.cross_entropy`.

    Raises:
        ValueError: Shapes, dtypes or options do not fit together, or ``inplace_gradient`` would destroy
            a leaf or logits that are not contiguous.
    """
    check_rows(logits_shard, target)
    check_per_row(target, compute_dtype(logits_shard.dtype), grad=grad, lse=lse)
    check_options(label_smoothing, z_loss, softcap)
    if inplace_gradient:
        check_inplace(logits_shard)
    options = (vocab_start, vocab_size, ignore_index, label_smoothing, z_loss, softcap or 0.0)
    return gradient_of_logits(grad, logits_shard, target.long(), lse, *options, inplace=inplace_gradient)
