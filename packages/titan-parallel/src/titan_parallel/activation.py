"""Activation checkpointing: recompute blocks in the backward pass instead of storing them."""

from __future__ import annotations

from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

__all__ = ["checkpoint_blocks"]


def checkpoint_blocks(blocks: nn.ModuleDict, *, every: int = 1) -> None:
    """Recompute every ``every``-th block of ``blocks``, in place.

    The wrapper keeps fully qualified names, so checkpoints don't depend on it.

    Args:
        blocks: the decoder blocks, in order.
        every: 1 recomputes all blocks (least memory), k each k-th.
    """
    for index, (name, block) in enumerate(blocks.items()):
        if index % every == 0:
            blocks[name] = checkpoint_wrapper(block, preserve_rng_state=False)
