"""Loading one checkpoint: everything is verified before the live model is touched."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from titan_parallel.checkpoint import collective, dcp
from titan_parallel.checkpoint.manifest import Manifest, check_files
from titan_parallel.checkpoint.optimizer import OptimizerRecord, OptimizerTargets
from titan_parallel.checkpoint.state import compare_names, dtype_notes, listed, model_tensors
from titan_parallel.checkpoint.writer import OPTIMIZER, TRAINER, rank_file
from titan_parallel.errors import CheckpointCorruptError, CheckpointError, CheckpointMismatchError

__all__ = ["CheckpointLoader", "Loaded"]

T = TypeVar("T")


@dataclass(frozen=True)
class Loaded:
    """What a load brought, besides the model's and the optimizer's tensors.

    Attributes:
        step: training step.
        path: the checkpoint that was taken.
        trainer: rank 0's state at the save.
        per_rank: this rank's state; None when another number of ranks had saved.
        world_size: ranks that saved.
        notes: what the user should know: dtypes cast, a damaged checkpoint passed over.
    """

    step: int
    path: Path
    trainer: dict[str, Any]
    per_rank: dict[str, Any] | None
    world_size: int
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Small:
    """The files besides DCP's."""

    trainer: dict[str, Any]
    per_rank: dict[str, Any] | None
    optimizer: OptimizerRecord | None


class CheckpointLoader:
    """One load; :meth:`load` is collective.

    Args:
        path: a checkpoint.
        verify: hash every file; sizes are compared in any case.
    """

    def __init__(self, path: Path, *, verify: bool) -> None:
        self._path = path
        self._verify = verify
        self._reader = dcp.SafeReader(path)

    def load(self, model: nn.Module, optimizer: Optimizer | None) -> Loaded:
        """Fill model and optimizer in place.

        Raises:
            CheckpointNotFoundError: no such checkpoint.
            CheckpointCorruptError: files are missing or damaged.
            CheckpointMismatchError: a checkpoint of another model or optimizer.
        """
        manifest = self._from_rank0(lambda: Manifest.read(self._path))
        self._together(lambda: self._check_share(manifest))
        small = self._together(lambda: self._read_small(manifest, optimizer is not None))
        tensors = self._together(lambda: model_tensors(model))
        self._compare(tensors, manifest)
        targets = None
        if optimizer is not None:
            targets = self._together(lambda: self._optimizer_targets(model, optimizer, small.optimizer))
        self._fill(tensors, targets)
        notes = dtype_notes(tensors, manifest.parameters)
        if small.per_rank is None:
            notes.append(
                f"saved by {manifest.world_size} ranks and loaded by {collective.world_size()}: "
                "per-rank state (random numbers) is not restored"
            )
        return Loaded(manifest.step, self._path, small.trainer, small.per_rank, manifest.world_size, notes)

    def _check_share(self, manifest: Manifest) -> None:
        """Check this rank's share of the files: largest first, dealt out in turns."""
        names = sorted(manifest.files, key=lambda name: (-manifest.files[name].bytes, name))
        share = names[collective.rank() :: collective.world_size()]
        problems = check_files(self._path, manifest, share, hashes=self._verify)
        if problems:
            raise CheckpointCorruptError(f"checkpoint {self._path} is damaged: {listed(problems)}")

    def _read_small(self, manifest: Manifest, with_optimizer: bool) -> _Small:
        trainer = json.loads((self._path / TRAINER).read_text())
        per_rank = record = None
        if manifest.world_size == collective.world_size():
            per_rank = self._torch_load(rank_file(collective.rank()))
        if with_optimizer and manifest.optimizer is not None:
            record = OptimizerRecord(**self._torch_load(OPTIMIZER))
        self._reader.read_metadata()  # DCP would only complain about it later, at length
        return _Small(trainer, per_rank, record)

    def _torch_load(self, name: str) -> dict[str, Any]:
        state: dict[str, Any] = torch.load(self._path / name, map_location="cpu", weights_only=True)
        return state

    def _compare(self, tensors: Mapping[str, Tensor], manifest: Manifest) -> None:
        """Refuse a checkpoint of another model; what one rank doesn't hold another may (pipeline stages)."""
        absent = self._gather(lambda: [name for name in manifest.parameters if name not in tensors])
        unexpected = [name for name in absent[0] if all(name in others for others in absent)]
        shapes = {name: record.shape for name, record in manifest.parameters.items()}

        def check() -> None:
            problems = compare_names(tensors, shapes, unexpected=unexpected)
            if problems:
                raise CheckpointMismatchError(
                    f"checkpoint of another model ({self._path}): {'; '.join(problems)}; "
                    "use the config it was made with"
                )

        self._together(check)

    def _optimizer_targets(
        self, model: nn.Module, optimizer: Optimizer, record: OptimizerRecord | None
    ) -> OptimizerTargets:
        if record is None:
            raise CheckpointMismatchError(
                f"checkpoint without optimizer state ({self._path}): training can't be resumed from it; "
                "start from its weights only"
            )
        saved = dcp.tensor_records(self._reader.read_metadata())
        shapes = {
            name.removeprefix("optim."): (entry.size, entry.properties.dtype)
            for name, entry in saved.items()
            if name.startswith("optim.")
        }
        return OptimizerTargets(model, optimizer, record, shapes)

    def _fill(self, tensors: dict[str, Tensor], targets: OptimizerTargets | None) -> None:
        state: dict[str, Any] = {"model": tensors}
        if targets is not None and targets.tensors:
            state["optim"] = targets.tensors
        try:
            dcp.load(state, self._reader)
        except dcp.CheckpointException as failed:
            reasons = (f"rank {rank}: {collective.describe(e)}" for rank, (e, _) in failed.failures.items())
            raise CheckpointCorruptError(f"checkpoint {self._path}: {'; '.join(reasons)}") from failed
        except RuntimeError as lost:
            raise CheckpointError(
                f"checkpoint {self._path}: another rank ended or failed ({collective.describe(lost)})"
            ) from lost
        if targets is not None:
            targets.commit()

    def _gather(self, fn: Callable[[], T]) -> list[T]:
        return collective.gather(fn, doing=f"loading {self._path}", error=CheckpointCorruptError)

    def _together(self, fn: Callable[[], T]) -> T:
        return collective.together(fn, doing=f"loading {self._path}", error=CheckpointCorruptError)

    def _from_rank0(self, fn: Callable[[], T]) -> T:
        return collective.from_rank0(fn, doing=f"loading {self._path}", error=CheckpointCorruptError)
