"""The trainer against a bare PyTorch loop: same model, batches and optimizer, interleaved in one run."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import torch

from titan_bench.bare_loop import BareLoop
from titan_bench.errors import BenchError, VerificationError
from titan_bench.timing import Comparison, interleave
from titan_parallel.runtime import start
from titan_pretrain.config import TrainConfig
from titan_pretrain.trainer.loop import Loop
from titan_pretrain.trainer.observe import Observer
from titan_pretrain.trainer.optim import build_optimizer, lr_at, set_lr
from titan_pretrain.trainer.setup import Setup

__all__ = ["TrainerResult", "measure_trainer"]

WARMUP_STEPS = 4
LOSS_TOLERANCE = 1e-5


@dataclass(frozen=True)
class TrainerResult:
    """Throughput of both loops.

    Attributes:
        comparison: seconds per optimizer step.
        tokens_per_step: tokens of one optimizer step.
        worst_loss_difference: over all steps, in nats.
    """

    comparison: Comparison
    tokens_per_step: int
    worst_loss_difference: float


def measure_trainer(
    config: TrainConfig, rounds: int, progress: Callable[[str], None] = lambda _: None
) -> TrainerResult:
    """Train the same steps with both loops, taking turns, and compare the losses before the times.

    The trainer does all it does in a real run: reads and tokenizes text in its workers, agrees with
    the other ranks, checks the gradients, writes metrics.

    Args:
        config: one process, fp32; its ``training.steps``, logging and saving are set by the benchmark.
        rounds: timed optimizer steps per side.
        progress: told what is going on.

    Raises:
        BenchError: the config needs several processes or another precision.
        VerificationError: the loops' losses differ.
    """
    config = _for_benchmark(config, rounds)
    runtime = start()
    if runtime.world_size != 1 or runtime.device.type != "cpu":
        raise BenchError("titan-bench trainer compares on one CPU process: run it without torchrun and GPU")
    with tempfile.TemporaryDirectory(prefix="titan-bench-") as folder, ExitStack() as stack:
        setup = Setup.create(config, runtime, Path(folder))
        progress("preparing the batches of the bare loop")
        bare = _bare_loop(setup)
        state = setup.build_state()
        stack.callback(state.loader.close)
        observer = stack.enter_context(Observer(setup, quiet=True))
        observer.start(state, [])
        loop = Loop(setup, state, setup.build_stepper(state), observer, None)
        losses: list[float] = []

        def bare_step() -> None:
            lr = lr_at(bare.steps + 1, config.training.steps, config.optim.lr, config.lr)
            set_lr(bare.optimizer, lr)
            losses.append(bare.step().item())

        def our_step() -> None:
            loop.advance()

        progress(f"{WARMUP_STEPS} steps of each to warm up, then {rounds} timed")
        interleave(our_step, bare_step, WARMUP_STEPS)
        comparison = interleave(our_step, bare_step, rounds)
        worst = _verify(Path(folder), losses)
        return TrainerResult(comparison, setup.tokens_per_step, worst)


def _for_benchmark(config: TrainConfig, rounds: int) -> TrainConfig:
    if config.training.precision not in ("auto", "fp32"):
        raise BenchError(
            f"training.precision ({config.training.precision}): the bare loop trains in fp32 only; "
            "leave it at auto or fp32"
        )
    changes = {
        "training": {"steps": WARMUP_STEPS + rounds},
        "checkpoint": {"every": 0, "save_last": False},
        "metrics": {"every": 1, "report": False},  # every step logged: the most the trainer can cost
        "validation": {"every": 0},
    }
    raw = config.model_dump()
    for section, values in changes.items():
        raw[section] |= values
    return TrainConfig.model_validate(raw)


def _bare_loop(setup: Setup) -> BareLoop:
    config = setup.config
    state = setup.build_state()  # the trainer's own way to the same weights and batches
    batches = [[next(state.loader) for _ in range(setup.micro_batches)] for _ in range(config.training.steps)]
    state.loader.close()
    state.checkpoints.close()
    return BareLoop(
        state.model,
        build_optimizer(state.model, config.optim),
        batches,
        max_grad_norm=config.optim.max_grad_norm,
        document_mask=config.data.document_mask,
    )


def _verify(run_dir: Path, losses: Sequence[float]) -> float:
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    ours = torch.tensor([row["loss"] for row in rows], dtype=torch.float64)
    theirs = torch.tensor(losses, dtype=torch.float64)
    if len(ours) != len(theirs):
        raise VerificationError(f"the trainer logged {len(ours)} steps, the bare loop made {len(theirs)}")
    worst = (ours - theirs).abs().max().item()
    if not worst <= LOSS_TOLERANCE * ours.abs().max().item():
        raise VerificationError(f"the losses differ by {worst:.2e}: a speed would mean nothing")
    return worst
