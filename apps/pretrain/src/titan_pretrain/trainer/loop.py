"""The training loop."""

from __future__ import annotations

import signal
from functools import partial
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from titan_pretrain.data import Batch
from titan_pretrain.errors import PretrainError, TrainingError
from titan_pretrain.trainer.nonfinite import give_up, save_if_finite
from titan_pretrain.trainer.observe import Observer
from titan_pretrain.trainer.optim import lr_at, set_lr
from titan_pretrain.trainer.setup import Setup
from titan_pretrain.trainer.signals import StopRequest
from titan_pretrain.trainer.state import RunState
from titan_pretrain.trainer.step import Stepper, StepResult
from titan_pretrain.trainer.validate import Validator

__all__ = ["Loop"]


class Loop:
    """Steps ``state`` to the end of the run: batches, update, log, validate, save."""

    def __init__(
        self,
        setup: Setup,
        state: RunState,
        stepper: Stepper,
        observer: Observer,
        validator: Validator | None,
    ) -> None:
        self.setup = setup
        self.config = setup.config
        self.state = state
        self.stepper = stepper
        self.observer = observer
        self.validator = validator
        self.stop = StopRequest(speaks=setup.runtime.is_main)

    def run(self) -> int:
        """Train until the last step or a stop request; returns the exit code."""
        with self.stop:
            while self.state.step < self.config.training.steps:
                if self.advance():
                    return self._stopped()
            if self.config.checkpoint.save_last and self._unsaved():
                self._save()
        return 0

    def advance(self) -> bool:
        """One optimizer step and what follows it; True when some rank was asked to stop."""
        cursor = self.state.loader.state_dict()
        batches, failure = self._read()
        num_valid, stop, failed = self._agree(batches, failure)
        if failed:
            self._give_up_reading(failure, cursor)
        step = self.state.step + 1
        lr = lr_at(step, self.config.training.steps, self.config.optim.lr, self.config.lr)
        set_lr(self.state.optimizer, lr)
        result = self.stepper.step(batches, num_valid)
        if self._is_hopeless(result):
            with self.observer.paused():
                give_up(self.state, result, cursor, again=partial(self.stepper.can_step, batches, num_valid))
        self.state.step = step
        self.state.tokens += self.setup.tokens_per_step
        self._observe(result, lr)
        return stop

    def _read(self) -> tuple[list[Batch], PretrainError | None]:
        """This rank's micro-batches of a step, or why they can't be read."""
        try:
            return [next(self.state.loader) for _ in range(self.setup.micro_batches)], None
        except PretrainError as error:
            return [], error

    def _agree(self, batches: list[Batch], failure: PretrainError | None) -> tuple[int, bool, bool]:
        """Valid tokens of all ranks, and whether any rank was asked to stop or can't read its data.

        One small all-reduce on the CPU, so that the GPU need not be waited for.
        """
        num_valid = sum(batch.num_valid for batch in batches)
        totals = torch.tensor([num_valid, int(self.stop.signal is not None), int(failure is not None)])
        dist.all_reduce(totals)
        valid, stops, failures = totals.tolist()
        return valid, stops > 0, failures > 0

    def _give_up_reading(self, failure: PretrainError | None, cursor: dict[str, Any]) -> NoReturn:
        """Save what was trained, then stop on every rank."""
        if self._unsaved() and self.state.step:
            self._save(data=cursor, retain=False)
        raise failure or TrainingError("stopped, because another rank can't read its data")

    def _observe(self, result: StepResult, lr: float) -> None:
        self.observer.step(self.state, result, lr)
        every = self.config.validation.every
        if self.validator is not None and self.state.step % every == 0:
            with self.observer.paused():
                self.observer.validation(self.state, self.validator.run())
        every = self.config.checkpoint.every
        if every and self.state.step % every == 0:
            self._save()

    def _is_hopeless(self, result: StepResult) -> bool:
        """Whether the run can't go on; a skipped step, or a few, are loss scaling at work."""
        scaler = self.state.scaler
        limit = self.config.training.loss_scaling.max_skips_in_a_row
        return not (result.updated or (scaler.enabled and scaler.skips_in_a_row < limit))

    def _unsaved(self) -> bool:
        """Whether the present step has no checkpoint yet."""
        return self.state.checkpoints.steps()[-1:] != [self.state.step]

    def _save(self, *, data: dict[str, Any] | None = None, retain: bool = True) -> None:
        with self.observer.paused():
            save_if_finite(self.state, data=data, retain=retain)

    def _stopped(self) -> int:
        if self._unsaved():
            self._save()
        number = self.stop.signal or signal.SIGTERM
        self.observer.say(
            f"stopped at step {self.state.step} by {signal.Signals(number).name}; --resume continues"
        )
        return 128 + number
