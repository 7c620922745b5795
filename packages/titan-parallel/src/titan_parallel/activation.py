"""Activation checkpointing: recompute blocks in the backward pass instead of storing them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint

__all__ = ["checkpoint_blocks"]


def checkpoint_blocks(blocks: Iterable[nn.Module], *, every: int = 1) -> None:
    """Recompute every ``every``-th block of ``blocks``, in place.

    The forward method is replaced, not the module: a wrapper module would change the parameters'
    names, and with them whatever goes by name - initial weights, weight decay, checkpoints.
    Do it before ``fully_shard``, whose hooks must stay outside of what is recomputed.

    Args:
        blocks: the decoder blocks, in order; they draw no random numbers.
        every: 1 recomputes all blocks (least memory), k each k-th.
    """
    for index, block in enumerate(blocks):
        if index % every == 0:
            block.forward = partial(checkpoint, block.forward, use_reentrant=False, preserve_rng_state=False)
