"""Runs of the real trainer on forked ranks: small enough to take about a second."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo  # every rank needs it, which takes most of a second; ranks are forks of this process
import torch.distributed as dist

from titan_parallel.runtime import Runtime
from titan_parallel.testing import run_ranks
from titan_pretrain.config import TrainConfig
from titan_pretrain.config.run_folder import newest_checkpoint
from titan_pretrain.trainer.loop import Loop
from titan_pretrain.trainer.observe import Observer
from titan_pretrain.trainer.setup import Setup

STOP_SIGNAL = 15


@dataclass
class RankResult:
    """What one rank saw."""

    code: int
    hashes: list[tuple[str, ...]]
    """Of each micro-batch, one per sequence."""
    valid: list[int]
    """Labels with a loss in each micro-batch."""


class Recorder:
    """A loader that notes what it hands out, and asks the run to stop at a batch."""

    def __init__(self, loader: Any, loop: Loop, stop_at: int | None) -> None:
        self._loader = loader
        self._loop = loop
        self._stop_at = stop_at
        self.hashes: list[tuple[str, ...]] = []
        self.valid: list[int] = []

    def __next__(self) -> Any:
        batch = next(self._loader)
        self.hashes.append(batch.hashes)
        self.valid.append(batch.num_valid)
        if len(self.hashes) == self._stop_at:
            self._loop.stop.signal = STOP_SIGNAL
        return batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


def train_on_this_rank(
    config: TrainConfig, run_dir: Path, steps: int | None, tamper: Callable[[Loop], None] | None
) -> RankResult:
    """Train to the end, or for ``steps`` optimizer steps, from the newest checkpoint if there is one."""
    runtime = Runtime(dist.get_rank(), dist.get_world_size(), dist.get_rank(), torch.device("cpu"))
    setup = Setup.create(config, runtime, run_dir)
    with Observer(setup) as observer:
        state = setup.build_state()
        checkpoint = newest_checkpoint(run_dir)
        if checkpoint is not None:
            state.load(checkpoint, on_corrupt=config.checkpoint.on_corrupt)
        stepper = setup.build_stepper(state)
        loop = Loop(setup, state, stepper, observer, setup.build_validator(state, stepper))
        recorder = Recorder(state.loader, loop, steps and steps * setup.micro_batches)
        state.loader = recorder
        if tamper is not None:
            tamper(loop)
        observer.start(state, [])
        try:
            code = loop.run()
        finally:
            recorder.close()
    return RankResult(code, recorder.hashes, recorder.valid)


@pytest.fixture(scope="session")
def train():
    """``train(config, world_size, run_dir, steps=None, tamper=None) -> list of RankResult``."""

    def run(config, world_size, run_dir, *, steps=None, tamper=None):
        run_dir.mkdir(parents=True, exist_ok=True)
        return run_ranks(world_size, train_on_this_rank, config, run_dir, steps, tamper)

    return run


@pytest.fixture(scope="session")
def rows():
    """A function that reads metrics.jsonl of a run folder: step -> row."""

    def read(run_dir: Path) -> dict[int, dict[str, Any]]:
        lines = (run_dir / "metrics.jsonl").read_text().splitlines()
        return {row["step"]: row for row in map(json.loads, lines)}

    return read


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    """A folder of text files of very different lengths; to be read only."""
    folder = tmp_path_factory.mktemp("corpus")
    for index in range(60):
        words = [f"w{(index * k * k) % 37}" for k in range(3 + (index * 29) % 190)]
        (folder / f"{index:03d}.txt").write_text(" ".join(words) + ".\n")
    return folder


@pytest.fixture(scope="session")
def tiny(corpus):
    """A function that makes a config of a model of a few thousand parameters; keywords override sections."""

    def make(**sections: dict[str, Any]) -> TrainConfig:
        config: dict[str, dict[str, Any]] = {
            "model": {
                "dim": 32,
                "n_layers": 2,
                "n_heads": 4,
                "n_kv_heads": 2,
                "ffn_dim": 48,
                "vocab_size": 300,
            },
            "data": {"dataset": "text", "path": [str(corpus)], "workers": 0},
            "training": {"steps": 20, "seq_len": 32, "micro_batch_size": 4},
            "lr": {"warmup_steps": 4},
            "checkpoint": {"save_last": True},
            "metrics": {"every": 1, "tensorboard": False, "report": False},
        }
        for name, values in sections.items():
            config.setdefault(name, {}).update(values)
        return TrainConfig.model_validate(config)

    return make
