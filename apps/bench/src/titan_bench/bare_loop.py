"""The training loop everybody writes first: what the trainer is measured against."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from titan_pretrain.data import Batch

__all__ = ["BareLoop"]


class BareLoop:
    """Forward, loss, backward, clip, AdamW; nothing logged, checked, saved or resumed.

    Args:
        model: takes (tokens, positions, document ids), gives logits.
        optimizer: over its parameters.
        batches: prepared beforehand, so that reading text costs this side nothing.
        max_grad_norm: norm to clip to.
        document_mask: pass the document ids to the model.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        batches: Sequence[Sequence[Batch]],
        *,
        max_grad_norm: float | None,
        document_mask: bool,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.batches = batches
        self.max_grad_norm = max_grad_norm
        self.document_mask = document_mask
        self.steps = 0

    def step(self) -> Tensor:
        """One optimizer step; returns the mean loss over the step's valid tokens."""
        batches = self.batches[self.steps]
        num_valid = sum(batch.num_valid for batch in batches)
        total = torch.zeros(())
        for batch in batches:
            loss = self._loss(batch) / num_valid
            loss.backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        if self.max_grad_norm is not None:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.steps += 1
        return total

    def _loss(self, batch: Batch) -> Tensor:
        ids = batch.document_ids if self.document_mask else None
        logits = self.model(batch.tokens, batch.positions, ids)
        return F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), reduction="sum")
