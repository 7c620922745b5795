"""The parts of a run, put together on this rank."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from titan_parallel.checkpoint import CheckpointManager
from titan_parallel.loss_scaling import DynamicLossScaler
from titan_parallel.mesh import ParallelDims
from titan_parallel.precision import Precision, resolve_precision
from titan_parallel.runtime import Runtime, on_every, on_main
from titan_pretrain.config.run_folder import CHECKPOINTS
from titan_pretrain.config.sections import DataConfig, TrainConfig
from titan_pretrain.data import DocumentSource, TokenLoader, build_source
from titan_pretrain.tokenizer import Tokenizer, tokenizer_for_run
from titan_pretrain.trainer.build import build_model
from titan_pretrain.trainer.optim import build_optimizer
from titan_pretrain.trainer.state import RunState
from titan_pretrain.trainer.step import Stepper
from titan_pretrain.trainer.validate import Validator, naming_validation

__all__ = ["Setup"]


@dataclass(frozen=True)
class Setup:
    """What is fixed for the whole run on this rank."""

    config: TrainConfig
    runtime: Runtime
    run_dir: Path
    dims: ParallelDims
    precision: Precision
    source: DocumentSource
    tokenizer: Tokenizer

    @classmethod
    def create(
        cls, config: TrainConfig, runtime: Runtime, run_dir: Path, *, say: Callable[[str], None] | None = None
    ) -> Setup:
        """Open the dataset and the tokenizer and settle degrees and precision; every rank calls it.

        Args:
            config: the run's config.
            runtime: this rank.
            run_dir: the run's folder.
            say: told on rank 0 what takes a while.
        """
        parallel = config.parallel
        dims = ParallelDims.resolve(
            runtime.world_size, dp_replicate=parallel.dp_replicate, dp_shard=parallel.dp_shard
        )
        source = on_every(partial(build_source, config.data, seed=config.training.seed))
        # Rank 0 trains the tokenizer if there is none; afterwards all ranks load the same files.
        on_main(partial(_prepare_tokenizer, config, source, run_dir, say))
        return cls(
            config=config,
            runtime=runtime,
            run_dir=run_dir,
            dims=dims,
            precision=resolve_precision(config.training.precision, runtime.device),
            source=source,
            tokenizer=tokenizer_for_run(config, source, run_dir),
        )

    @property
    def micro_batches(self) -> int:
        """Micro-batches per rank and optimizer step."""
        training = self.config.training
        if training.global_batch_size is None:
            return 1
        return training.global_batch_size // (training.micro_batch_size * self.dims.dp_size)

    @property
    def tokens_per_step(self) -> int:
        """Tokens of all ranks in one optimizer step."""
        training = self.config.training
        return self.micro_batches * training.micro_batch_size * training.seq_len * self.dims.dp_size

    def build_state(self) -> RunState:
        """Model, optimizer, scaler and loader at step 0."""
        config, scaling = self.config, self.config.training.loss_scaling
        model = build_model(config, self.dims, self.precision, self.runtime.device)
        return RunState(
            model=model,
            optimizer=build_optimizer(model, config.optim),
            scaler=DynamicLossScaler(
                scale=scaling.init_scale,
                growth_factor=scaling.growth_factor,
                backoff_factor=scaling.backoff_factor,
                growth_interval=scaling.growth_interval,
                enabled=self.precision.loss_scaling,
            ),
            loader=self._training_loader(),
            checkpoints=CheckpointManager(self.run_dir / CHECKPOINTS, keep=config.checkpoint.keep),
            config=config,
        )

    def build_stepper(self, state: RunState) -> Stepper:
        """The optimizer step over ``state``."""
        return Stepper(
            state.model,
            state.optimizer,
            state.scaler,
            device=self.runtime.device,
            max_grad_norm=self.config.optim.max_grad_norm,
            document_mask=self.config.data.document_mask,
        )

    def build_validator(self, state: RunState, stepper: Stepper) -> Validator | None:
        """Validation as configured; None when it is off.

        Its batches are read once, so that data that can't be validated on ends the run here and not at
        the first validation; every rank calls it.
        """
        validation = self.config.validation
        if not validation.every:
            return None
        with naming_validation(validation):
            loader = on_every(self._validation_loader)
            validator = Validator(state.model, stepper, loader, validation.batches)
            validator.try_data()
        return validator

    def _validation_loader(self) -> TokenLoader:
        validation = self.config.validation
        if validation.data is None:
            return self._loader(self.config.data, self.source, holdout=validation.holdout, validation=True)
        source = build_source(validation.data, seed=self.config.training.seed)
        return self._loader(validation.data, source, holdout=0.0, validation=True)

    def _training_loader(self) -> TokenLoader:
        validation = self.config.validation
        holdout = validation.holdout if validation.every and validation.data is None else 0.0
        return self._loader(self.config.data, self.source, holdout=holdout, validation=False)

    def _loader(
        self, data: DataConfig, source: DocumentSource, *, holdout: float, validation: bool
    ) -> TokenLoader:
        training = self.config.training
        return TokenLoader(
            source,
            self.tokenizer,
            seq_len=training.seq_len,
            micro_batch_size=training.micro_batch_size,
            dp_rank=self.runtime.rank,
            dp_size=self.dims.dp_size,
            seed=training.seed,
            shuffle=data.shuffle,
            document_mask=data.document_mask,
            workers=0 if validation else data.workers,
            holdout=holdout,
            part="validation" if validation else "train",
        )


def _prepare_tokenizer(
    config: TrainConfig, source: DocumentSource, run_dir: Path, say: Callable[[str], None] | None
) -> None:
    tokenizer_for_run(config, source, run_dir, say=say)
