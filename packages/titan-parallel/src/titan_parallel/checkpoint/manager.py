"""The checkpoints of one run."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from torch import nn
from torch.optim import Optimizer

from titan_parallel.checkpoint import collective, layout
from titan_parallel.checkpoint.loader import CheckpointLoader, Loaded
from titan_parallel.checkpoint.writer import CheckpointWriter
from titan_parallel.errors import (
    CheckpointCorruptError,
    CheckpointError,
    CheckpointNotFoundError,
    CheckpointWriteError,
)

__all__ = ["CheckpointManager", "Loaded"]


class CheckpointManager:
    """Saves and loads a run's checkpoints; every method that says so is collective.

    A checkpoint appears under its name only when it is complete on every rank, so a job killed at any
    moment leaves the newest complete one loadable.  Any number of ranks loads what any other saved.
    Works without a process group too, as one rank.

    Args:
        folder: where the run's checkpoints are; made when it doesn't exist.
        keep: how many checkpoints stay on disk, at least 1.
        verify: hash every file when loading; otherwise only sizes are compared.
        read_only: load only; neither locks nor makes the folder.

    Raises:
        CheckpointWriteError: a rank can't write in the folder, or another job does (on all ranks).
    """

    def __init__(self, folder: Path, *, keep: int, verify: bool = True, read_only: bool = False) -> None:
        if keep < 1:
            raise CheckpointError(f"keep ({keep}) must be at least 1")
        self.folder = Path(folder)
        self._keep = keep
        self._verify = verify
        self._read_only = read_only
        self._lock: layout.FolderLock | None = None
        if not read_only:
            try:
                self._open()
            except BaseException:
                self.close()
                raise

    def _open(self) -> None:
        """Lock the folder and try out writing there, on every rank: a first save may be hours away."""
        doing = f"opening {self.folder}"
        collective.from_rank0(self._prepare, doing=doing, error=CheckpointWriteError)
        probe = layout.probe_path(self.folder)
        try:
            file = probe / f"rank-{collective.rank()}"
            collective.together(lambda: layout.write_probe(file), doing=doing, error=CheckpointWriteError)
        finally:
            if collective.rank() == 0:
                shutil.rmtree(probe, ignore_errors=True)

    def _prepare(self) -> None:
        self._lock = layout.FolderLock(self.folder)
        layout.clean(self.folder)
        try:
            layout.probe_path(self.folder).mkdir()
        except OSError as error:
            raise layout.unwritable(self.folder, error) from error

    def _check_lock(self) -> None:
        if self._lock is None or not self._lock.held:
            raise CheckpointWriteError(
                f"checkpoint folder ({self.folder}): its manager is closed, or was opened before a fork or "
                "before the process group; open it after that, on every rank"
            )

    def save(
        self,
        step: int,
        *,
        model: nn.Module,
        optimizer: Optimizer | None,
        trainer: Mapping[str, Any],
        per_rank: Mapping[str, Any],
        retain: bool = True,
    ) -> Path:
        """Write the checkpoint of ``step`` and delete those past retention; collective.

        Args:
            step: training step; an older checkpoint of the same step is replaced.
            model: any sharding.
            optimizer: None stores the weights only.
            trainer: JSON-able state, taken from rank 0.
            per_rank: this rank's small state (random number generators); tensors and plain values.
            retain: False deletes nothing, for a state that may be worse than those before it.

        Returns:
            The checkpoint's path.

        Raises:
            CheckpointWriteError: on all ranks, when any could not write (a full disk, say) or died;
                earlier checkpoints are untouched.
            CheckpointError: the state can't be stored.
        """
        if self._read_only:
            raise CheckpointError(f"checkpoint folder ({self.folder}) was opened read-only")
        if step < 0:
            raise CheckpointError(f"step ({step}) must be at least 0")
        collective.from_rank0(self._check_lock, doing=f"saving in {self.folder}", error=CheckpointWriteError)
        writer = CheckpointWriter(
            self.folder, step, model=model, optimizer=optimizer, trainer=trainer, per_rank=per_rank
        )
        path = writer.write()
        if retain:
            collective.from_rank0(
                lambda: layout.retain(self.folder, self._keep, step),
                doing=f"deleting old checkpoints in {self.folder}",
                error=CheckpointWriteError,
            )
        return path

    def steps(self) -> list[int]:
        """Steps of the complete checkpoints, ascending; what is damaged since shows when loading."""
        return layout.steps(self.folder)

    def latest(self, *, before: int | None = None) -> Path | None:
        """The newest complete checkpoint, or the newest of a step below ``before``."""
        steps = [step for step in self.steps() if before is None or step < before]
        return layout.step_path(self.folder, steps[-1]) if steps else None

    def load(
        self,
        path: Path,
        *,
        model: nn.Module,
        optimizer: Optimizer | None = None,
        on_corrupt: Literal["fail", "previous"] = "fail",
    ) -> Loaded:
        """Fill ``model`` and ``optimizer`` from a checkpoint, after verifying it; collective.

        Args:
            path: a checkpoint, of this run or another.
            model: materialised, any sharding.
            optimizer: with or without state.
            on_corrupt: what to do about a damaged checkpoint: stop, or take the next older one.

        Raises:
            CheckpointNotFoundError: no such checkpoint.
            CheckpointCorruptError: files are missing or damaged; nothing was changed, unless the file
                system failed between verifying and reading.
            CheckpointMismatchError: a checkpoint of another model or optimizer; nothing was changed.
        """
        candidates = self._candidates(Path(path), on_corrupt)
        damaged: list[str] = []
        for candidate in candidates:
            try:
                with layout.reading(candidate):
                    loaded = CheckpointLoader(candidate, verify=self._verify).load(model, optimizer)
            except CheckpointCorruptError as error:
                damaged.append(str(error))
                continue
            self._set_aside(candidates[: len(damaged)])
            passed_over = [f"{text}; passed over for {loaded.path.name}" for text in damaged]
            return replace(loaded, notes=passed_over + loaded.notes)
        raise CheckpointCorruptError("; ".join(damaged) + _way_out(on_corrupt))

    def _set_aside(self, damaged: list[Path]) -> None:
        """Only in the folder this manager writes to: another job's checkpoints are not ours to touch."""
        own = [path for path in damaged if path.parent.resolve() == self.folder.resolve()]
        if own and not self._read_only:
            collective.from_rank0(
                lambda: [layout.set_aside(path).name for path in own],
                doing=f"renaming damaged checkpoints in {self.folder}",
                error=CheckpointWriteError,
            )

    def _candidates(self, path: Path, on_corrupt: str) -> list[Path]:
        def find() -> list[Path]:
            others = layout.steps(path.parent)
            if not path.is_dir():
                known = ", ".join(str(step) for step in others) or "none"
                raise CheckpointNotFoundError(
                    f"checkpoint ({path}) doesn't exist; steps in {path.parent}: {known}"
                )
            step = layout.step_of(path)
            if on_corrupt != "previous" or step is None:
                return [path]
            return [path, *(layout.step_path(path.parent, s) for s in reversed(others) if s < step)]

        return collective.from_rank0(find, doing=f"looking for {path}", error=CheckpointNotFoundError)

    def close(self) -> None:
        """Give the folder free for another job."""
        if self._lock is not None:
            self._lock.release()

    def __enter__(self) -> CheckpointManager:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _way_out(on_corrupt: str) -> str:
    if on_corrupt == "previous":
        return "; no older checkpoint is left"
    return "; resume from an older one, or set on_corrupt to 'previous'"
