"""Everything a run must remember: kept together, saved together, resumed together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import nn

from titan_parallel.checkpoint import CheckpointManager, Loaded
from titan_parallel.loss_scaling import DynamicLossScaler
from titan_pretrain.config.sections import TrainConfig
from titan_pretrain.data import TokenLoader, merge_states

__all__ = ["RunState"]


@dataclass
class RunState:
    """The moving parts of a run.

    Attributes:
        model: sharded, on its device.
        optimizer: over the model's parameters.
        scaler: loss scaling, disabled for precisions that need none.
        loader: this rank's training batches.
        checkpoints: where states are saved.
        config: saved along, so that a checkpoint explains itself.
        step: optimizer steps done, skipped ones included.
        tokens: tokens seen by all ranks.
        origin: what the run continues from, of this or another run.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    scaler: DynamicLossScaler
    loader: TokenLoader
    checkpoints: CheckpointManager
    config: TrainConfig
    step: int = 0
    tokens: int = 0
    origin: Loaded | None = None

    def save(self, *, data: dict[str, Any] | None = None, retain: bool = True) -> Path:
        """Write a checkpoint; every rank calls it.

        Args:
            data: this rank's loader state to save instead of the present one.
            retain: False deletes no older checkpoint.
        """
        rank_data = self.loader.state_dict() if data is None else data
        gathered: list[dict[str, Any]] = [{} for _ in range(dist.get_world_size())]
        dist.all_gather_object(gathered, rank_data)
        return self.checkpoints.save(
            self.step,
            model=self.model,
            optimizer=self.optimizer,
            trainer={
                "step": self.step,
                "tokens": self.tokens,
                "config": self.config.model_dump(mode="json"),
                "scaler": self.scaler.state_dict(),
                "data": merge_states(gathered),
            },
            per_rank={"rng": _rng_state()},
            retain=retain,
        )

    def load(self, checkpoint: Path, *, on_corrupt: Literal["fail", "previous"]) -> Loaded:
        """Continue from ``checkpoint``, whatever number of ranks wrote it; every rank calls it."""
        configured = [
            {k: v for k, v in group.items() if k != "params"} for group in self.optimizer.param_groups
        ]
        loaded = self.checkpoints.load(
            checkpoint, model=self.model, optimizer=self.optimizer, on_corrupt=on_corrupt
        )
        for group, values in zip(self.optimizer.param_groups, configured, strict=True):
            group.update(values)  # what the user asks for now, not what was in force at the save
        self.origin = loaded
        self.step = loaded.trainer["step"]
        self.tokens = loaded.trainer["tokens"]
        saved_scaling = loaded.trainer["config"]["training"]["loss_scaling"]
        if saved_scaling["init_scale"] == self.config.training.loss_scaling.init_scale:
            self.scaler.load_state_dict(loaded.trainer["scaler"])
        self.loader.load_state_dict(loaded.trainer["data"])
        if loaded.per_rank is not None:
            _set_rng_state(loaded.per_rank["rng"])
        return loaded

    def earlier_checkpoint(self) -> Path | None:
        """The newest checkpoint of a step before this one, in this run or the one it continues."""
        own = self.checkpoints.latest(before=self.step)
        if own is None and self.origin is not None and self.origin.step < self.step:
            return self.origin.path
        return own


def _rng_state() -> dict[str, torch.Tensor]:
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def _set_rng_state(state: dict[str, torch.Tensor]) -> None:
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
