"""Loss on text that is not trained on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import nn

from titan_parallel.runtime import on_every
from titan_pretrain.config.sections import ValidationConfig
from titan_pretrain.data import TokenLoader
from titan_pretrain.errors import PretrainError
from titan_pretrain.trainer.step import Stepper

__all__ = ["Validator", "naming_validation"]


@contextmanager
def naming_validation(config: ValidationConfig) -> Iterator[None]:
    """Say in the errors of datasets, which speak of ``data``, that it is the validation's."""
    own = config.data is not None
    place = "validation.data" if own else f"validation.holdout ({config.holdout:g})"
    way_out = (
        "name a dataset with text, or leave it out" if own else "raise it, or give validation.data a dataset"
    )
    try:
        yield
    except PretrainError as error:
        if error.message.startswith(place):
            raise
        raise type(error)(
            f"{place}: {error.message}",
            hint=error.hint or f"{way_out}; validation.every = 0 turns validation off",
        ) from error


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

    def try_data(self) -> None:
        """Read what every validation reads; an error of one rank is raised on all.

        Raises:
            DataError: the data can't be read, or has no text.
        """
        on_every(self._read_all)

    def _read_all(self) -> None:
        try:
            for _ in range(self.batches):
                next(self.loader)
        finally:
            self.loader.close()

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
