"""Where the metrics of a run go: metrics.jsonl always, TensorBoard and Weights & Biases if asked for."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from titan_pretrain.config.sections import TrainConfig
from titan_pretrain.errors import TrainingError, UsageError
from titan_pretrain.metrics import StepMetrics
from titan_pretrain.metrics.jsonl import FILE_NAME, MetricsFile

__all__ = ["MetricsWriter"]

TENSORBOARD = "tensorboard"
"""Folder of a run folder that holds the TensorBoard event files."""


class Sink(Protocol):
    """Takes the values of one step."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Record ``values`` at ``step``."""

    def close(self) -> None:
        """Flush and close."""


class TensorBoardSink:
    """TensorBoard event files in ``folder``; events after ``step`` are hidden from its viewer."""

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # takes half a second

        self._writer: Any = SummaryWriter(str(folder), purge_step=step + 1 if step else None, flush_secs=10)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Record ``values`` at ``step``."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()


class WandbSink:
    """A Weights & Biases run with the run folder's name, continued on a resume.

    Raises:
        UsageError: the ``wandb`` package is not installed.
    """

    def __init__(self, project: str, run_dir: Path, config: TrainConfig) -> None:
        try:
            wandb: Any = importlib.import_module("wandb")
        except ImportError as error:
            raise UsageError(
                f"metrics.wandb_project ({project}) needs the wandb package: {error}",
                hint="pip install wandb, or leave metrics.wandb_project out",
            ) from None
        self._run = wandb.init(
            project=project,
            id=run_dir.name,
            name=run_dir.name,
            dir=str(run_dir),
            config=config.model_dump(mode="json"),
            resume="allow",
        )

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Record ``values`` at ``step``."""
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        """Flush and finish the run."""
        self._run.finish()


class MetricsWriter:
    """Writes a run's metrics to every place its config names; rank 0 only.

    Args:
        run_dir: The run folder, which exists.
        config: The run's config; its ``metrics`` section counts.
        step: Step the run continues from; rows after it are dropped, since they come again.

    Raises:
        UsageError: Weights & Biases is configured, but not installed.
        TrainingError: The run folder can't be written.
    """

    def __init__(self, run_dir: Path, config: TrainConfig, step: int = 0) -> None:
        self._path = run_dir / FILE_NAME
        self._closing = ExitStack()
        self._sinks: list[Sink] = []
        project = config.metrics.wandb_project
        if project is not None:
            self._add(WandbSink(project, run_dir, config))
        try:
            self._file = MetricsFile(self._path, step)
            self._closing.callback(self._file.close)
            if config.metrics.tensorboard:
                self._add(TensorBoardSink(run_dir / TENSORBOARD, step))
        except OSError as error:
            raise self._write_error(error) from None

    def log(self, metrics: StepMetrics) -> None:
        """Write one training step.

        Raises:
            TrainingError: The disk is full or the file can't be written for another reason.
        """
        self._write(asdict(metrics))

    def log_validation(self, step: int, loss: float) -> None:
        """Write a validation loss, into the row of ``step`` if that is the last one.

        Raises:
            TrainingError: The disk is full or the file can't be written for another reason.
        """
        self._write({"step": step, "validation_loss": loss})

    def close(self) -> None:
        """Flush and close everything; further calls do nothing.

        Raises:
            TrainingError: The last of it can't be written.
        """
        try:
            self._closing.close()
        except OSError as error:
            raise self._write_error(error) from None

    def _add(self, sink: Sink) -> None:
        self._sinks.append(sink)
        self._closing.callback(sink.close)

    def _write(self, row: dict[str, Any]) -> None:
        values = {name: float(value) for name, value in row.items() if name != "step" and value is not None}
        try:
            self._file.write(row)
            for sink in self._sinks:
                sink.log(row["step"], values)
        except OSError as error:
            raise self._write_error(error) from None

    def _write_error(self, error: OSError) -> TrainingError:
        return TrainingError(
            f"metrics ({self._path}) can't be written: {error.strerror or error}",
            hint="make room or mend the permissions, then go on with --resume auto",
        )
