"""Loss on text that is not trained on."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

from titan_pretrain.data import TokenLoader
from titan_pretrain.trainer.step import Stepper

__all__ = ["Validator"]


class Validator:
    """Mean token loss over the same validation sequences each time.

    Args:
        model: switched to eval mode and back.
        stepper: computes the loss as in training.
        loader: gives the validation sequences; closing it makes it start over.
        batches: micro-batches per rank.
    """

    def __init__(self, model: nn.Module, stepper: Stepper, loader: TokenLoader, batches: int) -> None:
        self.model = model
        self.stepper = stepper
        self.loader = loader
        self.batches = batches

    @torch.no_grad()
    def run(self) -> float:
        """Mean loss per valid token over all ranks."""
        totals = torch.zeros(2, dtype=torch.float64, device=self.stepper.device)
        self.model.eval()
        try:
            for _ in range(self.batches):
                batch = next(self.loader)
                totals[0] += self.stepper.loss_sum(batch).double()
                totals[1] += batch.num_valid
        finally:
            self.model.train()
            self.loader.close()
        dist.all_reduce(totals)
        loss, count = totals.tolist()
        return float(loss / max(1.0, count))
