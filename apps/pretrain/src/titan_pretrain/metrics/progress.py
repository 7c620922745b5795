"""What a run prints: one line per logged step, or on a terminal a line that moves with every step."""

from __future__ import annotations

import io
import math
import sys
from typing import TextIO, cast

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TextColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from titan_pretrain.metrics import StepMetrics
from titan_pretrain.terminal import LossyStream

__all__ = ["Progress", "plain_line"]


def plain_line(metrics: StepMetrics, total_steps: int) -> str:
    """One step as a line such as ``step   20/100  loss 6.1234  grad_norm 1.23  ...  eta 0:41``."""
    return "  ".join(_fields(metrics, total_steps).values())


def _fields(metrics: StepMetrics, total_steps: int) -> dict[str, str]:
    width = max(4, len(str(total_steps)))
    fields = {
        "step": f"step {metrics.step:{width}d}/{total_steps}",
        "loss": f"loss {metrics.loss:.4f}",
        "grad_norm": "" if metrics.grad_norm is None else f"grad_norm {metrics.grad_norm:.2f}",
        "lr": f"lr {metrics.lr:.1e}",
        "speed": f"{metrics.tokens_per_s:,.0f} tok/s",
        "mfu": "" if metrics.mfu is None else f"mfu {metrics.mfu:.1%}",
        "scale": "" if metrics.loss_scale is None else f"scale {metrics.loss_scale:g}",
        "skipped": f"skipped {metrics.skipped}" if metrics.skipped else "",
        "eta": f"eta {format_duration(seconds_left(metrics, total_steps))}",
    }
    return {name: text for name, text in fields.items() if text}


def seconds_left(metrics: StepMetrics, total_steps: int) -> float | None:
    """Seconds that the remaining steps take at the present throughput; ``None`` if it is not known."""
    if metrics.step <= 0 or not math.isfinite(metrics.tokens_per_s) or metrics.tokens_per_s <= 0:
        return None
    tokens_per_step = metrics.tokens / metrics.step
    return (total_steps - metrics.step) * tokens_per_step / metrics.tokens_per_s


def format_duration(seconds: float | None) -> str:
    """``0:41``, ``12:05``, ``1:02:03`` or ``3d 04:05:06``; ``?`` for an unknown duration."""
    if seconds is None:
        return "?"
    minutes, second = divmod(max(0, round(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}d {hour:02d}:{minute:02d}:{second:02d}"
    return f"{hour}:{minute:02d}:{second:02d}" if hour else f"{minute}:{second:02d}"


class _ElapsedColumn(ProgressColumn):
    """The time since the start, which moves even during a long step."""

    def render(self, task: Task) -> Text:
        """Draw it."""
        return Text(format_duration(task.elapsed))


class Progress:
    """Prints a run's progress; rank 0 only.

    Args:
        total_steps: Steps of the whole run.
        step: Step the run continues from.
        stream: Where to print; standard output when absent.
    """

    def __init__(self, total_steps: int, step: int = 0, stream: TextIO | None = None) -> None:
        self._total = total_steps
        # Whoever read it may be gone (`| head`, a closed terminal): training goes on.
        file = cast(TextIO, LossyStream(stream or sys.stdout or io.StringIO()))
        # Metrics are no prose: rich must neither wrap them nor find emoji and markup in paths.
        self._console = Console(file=file, soft_wrap=True, highlight=False, emoji=False)
        self._rich = self._start_rich(step) if self._console.is_terminal else None
        self._measured: list[str] = []  # nothing yet
        self._eta: list[str] = []

    def advance(self, step: int) -> None:
        """Move the line of a terminal to ``step``; cheap enough for every step."""
        if self._rich is not None:
            text = "  ".join((*self._measured, *self._eta))
            self._rich.update(self._rich.task_ids[0], completed=step, text=text)

    def update(self, metrics: StepMetrics) -> None:
        """Show a logged step."""
        if self._rich is None:
            self.say(plain_line(metrics, self._total))
            return
        fields = _fields(metrics, self._total)
        # The line must fit an 80-column terminal; the rest stands in metrics.jsonl.
        self._measured = [fields[name] for name in ("loss", "speed", "skipped") if name in fields]
        self._eta = [fields["eta"]]
        self.advance(metrics.step)
        self._rich.refresh()

    def say(self, text: str) -> None:
        """Print a line of its own; a progress line stays below it."""
        self._console.print(text, markup=False)
        self._console.file.flush()  # a log file should show what a killed run did last

    def close(self) -> None:
        """Leave the last state on the terminal and give it back; may be called again."""
        if self._rich is not None:
            self._rich.update(self._rich.task_ids[0], text="  ".join(self._measured))  # nobody waits any more
            self._rich.stop()

    def _start_rich(self, step: int) -> RichProgress:
        columns = (
            TextColumn("step {task.completed}/{task.total}", markup=False),
            BarColumn(bar_width=12),
            _ElapsedColumn(),
            TextColumn("{task.fields[text]}", markup=False),
        )
        progress = RichProgress(*columns, console=self._console, redirect_stdout=True, redirect_stderr=True)
        progress.add_task("training", total=self._total, completed=step, text="starting")
        progress.start()
        return progress
