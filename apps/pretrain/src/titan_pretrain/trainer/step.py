"""One optimizer step: micro-batches forward and backward, the world's verdict, the update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from titan_parallel.gradients import GradientNorm, measure_gradients, scale_gradients_
from titan_parallel.loss_scaling import DynamicLossScaler
from titan_pretrain.data import Batch

__all__ = ["StepResult", "Stepper", "sum_of_losses"]


@dataclass(frozen=True)
class StepResult:
    """What one optimizer step did.

    Attributes:
        loss: this rank's share of the mean loss over the world's valid tokens; sum over ranks.
        norm: global gradient norm before clipping.
        updated: whether the weights moved; False when a gradient was not finite.
    """

    loss: Tensor
    norm: GradientNorm
    updated: bool


class Stepper:
    """Runs optimizer steps of ``model`` on batches of this rank."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        scaler: DynamicLossScaler,
        *,
        device: torch.device,
        max_grad_norm: float | None,
        document_mask: bool,
    ) -> None:
        self.model = model
        self.optimizer = optimizer
        self.scaler = scaler
        self.device = device
        self.max_grad_norm = max_grad_norm
        self.document_mask = document_mask

    def step(self, batches: Sequence[Batch], num_valid: int) -> StepResult:
        """Accumulate the gradients of ``batches`` and update, unless a gradient is not finite.

        Args:
            batches: this rank's micro-batches.
            num_valid: labels with a loss in all micro-batches of all ranks.
        """
        loss, norm = self._accumulate(batches, num_valid)
        if norm.finite:
            scale_gradients_(
                self.model.parameters(), norm, loss_scale=self.scaler.scale, max_norm=self.max_grad_norm
            )
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.scaler.update(norm.finite)
        return StepResult(loss, norm, updated=norm.finite)

    def can_step(self, batches: Sequence[Batch], num_valid: int) -> bool:
        """Whether a step would update: all gradients are finite.  Changes nothing; every rank calls it."""
        _, norm = self._accumulate(batches, num_valid)
        self.optimizer.zero_grad(set_to_none=True)
        return norm.finite

    def _accumulate(self, batches: Sequence[Batch], num_valid: int) -> tuple[Tensor, GradientNorm]:
        """Loss and norm of the gradients, which stay in ``.grad``, multiplied by the loss scale."""
        loss = torch.zeros((), device=self.device)
        for batch in batches:
            part = self.loss_sum(batch) / max(1, num_valid)
            self.scaler.scale_loss(part).backward()  # type: ignore[no-untyped-call]
            loss += part.detach()
        return loss, measure_gradients(self.model.parameters(), loss_scale=self.scaler.scale)

    def loss_sum(self, batch: Batch) -> Tensor:
        """Sum of the token losses of one micro-batch, fp32 scalar."""
        tokens, labels, positions = (
            x.to(self.device, non_blocking=True) for x in (batch.tokens, batch.labels, batch.positions)
        )
        document_ids = batch.document_ids.to(self.device, non_blocking=True) if self.document_mask else None
        return sum_of_losses(self.model(tokens, positions, document_ids), labels)


def sum_of_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy summed over labels that are not -100.

    Args:
        logits: (B, T, V), any float dtype; the softmax runs in fp32.
        labels: (B, T) int64.
    """
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="sum")
