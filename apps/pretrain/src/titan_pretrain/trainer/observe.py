"""What the user sees of a run: metrics, progress, notes.  Rank 0 speaks, the others help measuring."""

from __future__ import annotations

import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Literal

import torch.distributed as dist

from titan_alloc.memory import memory_stats
from titan_pretrain._version import __version__
from titan_pretrain.atomic import write_file
from titan_pretrain.cli.messages import program_as_typed
from titan_pretrain.config.dump import to_toml
from titan_pretrain.config.run_folder import unwritable_run_folder
from titan_pretrain.data import IndexedSource
from titan_pretrain.errors import PretrainError
from titan_pretrain.metrics import StepMetrics
from titan_pretrain.metrics.environment import environment_facts, save_environment
from titan_pretrain.metrics.flops import model_flops_utilization, num_parameters
from titan_pretrain.metrics.outcome import Outcome, clear_outcome, save_outcome
from titan_pretrain.metrics.progress import Progress
from titan_pretrain.metrics.sinks import MetricsWriter
from titan_pretrain.trainer.setup import Setup
from titan_pretrain.trainer.state import RunState
from titan_pretrain.trainer.step import StepResult

__all__ = ["Observer"]

CONFIG = "config.toml"


class Observer:
    """Times the training steps and writes down what they did; a context manager.

    Args:
        setup: the run.
        quiet: write the files, but print nothing.
    """

    def __init__(self, setup: Setup, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.setup = setup
        self.config = setup.config
        self.writer: MetricsWriter | None = None
        self.progress: Progress | None = None
        self._closing = ExitStack()
        self._since = 0.0
        self._paused = 0.0
        self._tokens = 0
        self._state: RunState | None = None

    def __enter__(self) -> Observer:
        """Nothing is opened before :meth:`start`."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()
        if error is not None:
            self._record("failed", str(error) or type(error).__name__)

    def start(self, state: RunState, notes: Sequence[str]) -> None:
        """Open the run's files and say what will happen; training starts or continues now."""
        self._state = state
        if self.setup.runtime.is_main:
            run_dir = self.setup.run_dir
            # A resume that has nothing to do must not leave its options as those of the run.
            if state.step < self.config.training.steps or not (run_dir / CONFIG).exists():
                self._describe_run(run_dir)
            if not self.quiet:
                self.progress = Progress(self.config.training.steps, step=state.step)
                self._closing.callback(self.progress.close)
            self.writer = MetricsWriter(run_dir, self.config, state.step)
            self._closing.callback(self.writer.close)
            for line in (*self._introduction(), *notes):
                self.say(line)
        self._restart_clock(state.tokens)

    def step(self, state: RunState, result: StepResult, lr: float) -> None:
        """Show the step that was just done, and log it if it is one to be logged; every rank calls it."""
        if self.progress is not None:
            self.progress.advance(state.step)
        last = state.step == self.config.training.steps
        if state.step % self.config.metrics.every and state.step != 1 and not last:
            return
        loss = result.loss.clone()
        dist.all_reduce(loss)
        mean_loss = loss.item()  # waits for the device, so the clock is read after the step's work
        if self.writer is not None:
            metrics = self._metrics(state, result, lr, mean_loss)
            self.writer.log(metrics)
            if self.progress is not None:
                self.progress.update(metrics)
        self._restart_clock(state.tokens)

    def validation(self, state: RunState, loss: float) -> None:
        """Log a validation loss."""
        if self.writer is not None:
            self.writer.log_validation(state.step, loss)
        self.say(f"step {state.step}: validation loss {loss:.4f}")

    def say(self, text: str) -> None:
        """Print a line, on rank 0 only."""
        if self.progress is not None:
            self.progress.say(text)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave the time spent inside out of tokens per second."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._paused += time.perf_counter() - started

    def finish(self, state: RunState, code: int) -> None:
        """Write the report and tell where everything is and what can be done with it.

        Args:
            state: the run's state at its end.
            code: the exit code: 0, or 128 and the number of the signal that stopped the run.
        """
        self._closing.close()
        self._record("stopped" if code else "finished", signal.Signals(code - 128).name if code else "")
        if self.progress is None:
            return
        run_dir, checkpoint = self.setup.run_dir, state.checkpoints.latest()
        lines = [f"run folder  {run_dir}", f"metrics     {run_dir / 'metrics.jsonl'}"]
        if self.config.metrics.report:
            lines.append(f"report      {_try_report(run_dir)}")
        if checkpoint is not None:
            lines.append(f"checkpoint  {checkpoint}")
            lines.append(f"next        {_next_command(run_dir, finished=code == 0)}")
        for line in lines:
            self.progress.say(line)

    def _record(self, ended: Literal["finished", "stopped", "failed"], cause: str) -> None:
        if self.writer is None or self._state is None:
            return
        with suppress(OSError):  # a full disk must not turn a finished run into a failure
            save_outcome(self.setup.run_dir, Outcome(ended, self._state.step, cause))

    def _introduction(self) -> list[str]:
        model, runtime, precision = self.config.model, self.setup.runtime, self.setup.precision
        processes = "1 process" if runtime.world_size == 1 else f"{runtime.world_size} processes"
        return [
            f"titan-pretrain {__version__}: {model.name}, {num_parameters(model):,} parameters, {processes}",
            f"precision {precision.name}: {precision.reason}",
            f"data {self.config.data.dataset}: {self._documents()}",
            f"run folder {self.setup.run_dir}",
        ]

    def _describe_run(self, run_dir: Path) -> None:
        try:
            write_file(run_dir / CONFIG, to_toml(self.config))
            save_environment(run_dir, self._environment())
            clear_outcome(run_dir)
        except OSError as error:
            raise unwritable_run_folder(run_dir, error) from None

    def _environment(self) -> dict[str, str]:
        runtime = self.setup.runtime
        return environment_facts(
            runtime.device, world_size=runtime.world_size, precision=self.setup.precision.name
        )

    def _documents(self) -> str:
        source = self.setup.source
        return f"{len(source):,} documents" if isinstance(source, IndexedSource) else "a stream"

    def _restart_clock(self, tokens: int) -> None:
        self._since, self._paused, self._tokens = time.perf_counter(), 0.0, tokens

    def _metrics(self, state: RunState, result: StepResult, lr: float, loss: float) -> StepMetrics:
        seconds = time.perf_counter() - self._since - self._paused
        tokens_per_s = (state.tokens - self._tokens) / seconds
        return StepMetrics(
            step=state.step,
            loss=loss,
            grad_norm=result.norm.value,
            lr=lr,
            tokens=state.tokens,
            tokens_per_s=tokens_per_s,
            loss_scale=state.scaler.scale if state.scaler.enabled else None,
            skipped=state.scaler.skipped,
            memory_gib=memory_stats(self.setup.runtime.device).peak_reserved / 2**30,
            mfu=self._mfu(tokens_per_s / self.setup.runtime.world_size),
        )

    def _mfu(self, tokens_per_s: float) -> float | None:
        return model_flops_utilization(
            self.config.model,
            self.config.training.seq_len,
            tokens_per_s,
            device=self.setup.runtime.device,
            dtype=self.setup.precision.compute_dtype,
        )


def _next_command(run_dir: Path, *, finished: bool) -> str:
    program, folder = program_as_typed(), shlex.quote(str(run_dir))
    if not finished:
        return f"{program} --resume {folder}"
    return f"{program} export --to hf {folder} {shlex.quote(str(run_dir / 'hf'))}"


def _try_report(run_dir: Path) -> str:
    """Where the report is, or why there is none: a full disk must not turn a finished run into a failure."""
    from titan_pretrain.metrics.report import write_report  # matplotlib takes a second

    try:
        return str(write_report(run_dir))
    except PretrainError as error:
        again = f"{shlex.quote(sys.executable)} -m titan_pretrain.metrics.report {shlex.quote(str(run_dir))}"
        return f"can't be written ({error}); later: {again}"
