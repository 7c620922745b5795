"""Results for people and for files."""

from __future__ import annotations

import statistics
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from titan_bench.results import write_json
from titan_bench.trainer import TrainerResult
from titan_pretrain.config import TrainConfig
from titan_pretrain.metrics.environment import environment_facts

__all__ = ["print_trainer", "save_trainer"]


def print_trainer(result: TrainerResult) -> None:
    """A table on standard output."""
    table = Table("loop", "ms/step (median)", "tokens/s (median)")
    for name, seconds in (
        ("titan-pretrain", result.comparison.ours),
        ("bare PyTorch", result.comparison.theirs),
    ):
        median = statistics.median(seconds)
        table.add_row(name, f"{median * 1e3:,.1f}", f"{result.tokens_per_step / median:,.0f}")
    console = Console()
    console.print(table)
    first, third = result.comparison.spread
    console.print(
        f"trainer / bare loop: {result.comparison.ratio:.3f} of its tokens/s "
        f"(quartiles {first:.3f} to {third:.3f}, {len(result.comparison.ours)} rounds)"
    )
    console.print(f"largest difference of a step's loss: {result.worst_loss_difference:.1e}")


def save_trainer(path: Path, config: TrainConfig, result: TrainerResult) -> None:
    """The same as JSON, with every round."""
    machine = environment_facts(torch.device("cpu"), world_size=1, precision="fp32")
    values = {
        "config": config.model_dump(mode="json"),
        "tokens_per_step": result.tokens_per_step,
        "ratio": result.comparison.ratio,
        "trainer_seconds": list(result.comparison.ours),
        "bare_seconds": list(result.comparison.theirs),
        "worst_loss_difference": result.worst_loss_difference,
    }
    write_json(path, "trainer", machine, values)
