"""Writing one checkpoint: everything under a hidden name first, the rename last.

A failure on any rank is agreed by all before anyone raises, and leaves nothing behind but the
checkpoints that were there before.
"""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.metadata import Metadata
from torch.optim import Optimizer

from titan_parallel.checkpoint import collective, dcp, layout
from titan_parallel.checkpoint.manifest import FileRecord, Manifest, ParameterRecord, new_digest
from titan_parallel.checkpoint.optimizer import OptimizerRecord, merge_records, optimizer_state
from titan_parallel.checkpoint.state import dtype_name, model_tensors
from titan_parallel.errors import CheckpointError, CheckpointWriteError

__all__ = ["OPTIMIZER", "TRAINER", "CheckpointWriter", "rank_file"]

T = TypeVar("T")
TRAINER = "trainer.json"
OPTIMIZER = "optimizer.pt"
_OVERHEAD_PER_TENSOR = 2048  # bytes: torch.save's zip container around each tensor
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def rank_file(rank: int) -> str:
    """Name of a rank's own file."""
    return f"rank-{rank:05d}.pt"


def megabytes(count: int) -> str:
    """``"72.1 MB"``."""
    return f"{count / 1e6:.1f} MB"


class CheckpointWriter:
    """One save; :meth:`write` is collective.

    Args:
        folder: where the run's checkpoints are; this job holds its lock.
        step: training step.
        model: any sharding.
        optimizer: None stores the weights only.
        trainer: JSON-able state, taken from rank 0.
        per_rank: this rank's small state; tensors and plain Python values.
    """

    def __init__(
        self,
        folder: Path,
        step: int,
        *,
        model: nn.Module,
        optimizer: Optimizer | None,
        trainer: Mapping[str, Any],
        per_rank: Mapping[str, Any],
    ) -> None:
        self._step = step
        self._final, self._partial = layout.step_path(folder, step), layout.partial_path(folder, step)
        self._sources = (model, optimizer, trainer, per_rank)
        self._model: dict[str, Tensor] = {}
        self._optimizer: dict[str, Tensor] = {}
        self._small: dict[str, bytes] = {}  # files this rank writes besides DCP's
        self._bytes_needed = 0

    def write(self) -> Path:
        """Write and publish the checkpoint.

        Returns:
            Its path.

        Raises:
            CheckpointError: the state can't be stored.
            CheckpointWriteError: a rank couldn't write, or died.
        """
        try:
            optimizer = self._optimizer_record(self._gather(self._prepare))
            writer = dcp.HashingWriter(self._partial)
            metadata = self._write_tensors(writer)
            files: dict[str, FileRecord] = {}
            for of_rank in self._gather(lambda: self._write_small(optimizer) | writer.records):
                files |= of_rank
            manifest = self._manifest(metadata, files, optimizer)
            self._from_rank0(lambda: self._publish(manifest))
        except BaseException:
            if collective.rank() == 0:
                shutil.rmtree(self._partial, ignore_errors=True)
            raise
        return self._final

    def _prepare(self) -> tuple[int, OptimizerRecord | None]:
        model, optimizer, trainer, per_rank = self._sources
        self._model = model_tensors(model)
        record = None
        if optimizer is not None:
            self._optimizer, record = optimizer_state(model, optimizer)
        self._small[rank_file(collective.rank())] = _to_bytes(per_rank, "per_rank")
        if collective.rank() == 0:
            self._small[TRAINER] = _to_json(trainer)
        self._bytes_needed = self._estimate()
        if collective.rank() == 0:
            self._make_room()
        return self._step, record

    def _estimate(self) -> int:
        """Bytes that all ranks together write."""
        tensors = [*self._model.values(), *self._optimizer.values()]
        data = sum(t.numel() * t.element_size() + _OVERHEAD_PER_TENSOR for t in tensors)
        return data + sum(map(len, self._small.values())) * collective.world_size()

    def _make_room(self) -> None:
        """Create the temporary folder unless the disk is too small: filling it would hurt others too."""
        layout.clean(self._final.parent)
        if self._free() < self._bytes_needed:
            raise self._failure(f"the disk is too full ({self._space()})")
        self._partial.mkdir()

    def _optimizer_record(self, prepared: list[tuple[int, OptimizerRecord | None]]) -> OptimizerRecord | None:
        steps = {step for step, _ in prepared}
        if len(steps) > 1:
            raise CheckpointError(f"ranks save different steps ({sorted(steps)}); all must save the same one")
        records = [record for _, record in prepared if record is not None]
        return merge_records(records) if records else None

    def _write_tensors(self, writer: dcp.HashingWriter) -> Metadata:
        state: dict[str, Any] = {"model": self._model}
        if self._optimizer:
            state["optim"] = self._optimizer
        try:
            return dcp.save(state, writer)
        except dcp.CheckpointException as failed:
            self._gather(lambda: self._raise(writer.os_error))  # the cause, on the rank that knows it
            reasons = (f"rank {rank}: {collective.describe(e)}" for rank, (e, _) in failed.failures.items())
            raise self._failure("; ".join(reasons)) from failed
        except RuntimeError as lost:
            raise self._failure(f"another rank ended or failed ({collective.describe(lost)})") from lost

    @staticmethod
    def _raise(error: OSError | None) -> None:
        if error is not None:
            raise error

    def _write_small(self, record: OptimizerRecord | None) -> dict[str, FileRecord]:
        if record is not None and collective.rank() == 0:
            self._small[OPTIMIZER] = _to_bytes(asdict(record), "optimizer")
        return {name: _write_file(self._partial / name, data) for name, data in self._small.items()}

    def _manifest(
        self, metadata: Metadata, files: dict[str, FileRecord], record: OptimizerRecord | None
    ) -> Manifest:
        tensors = dcp.tensor_records(metadata).items()
        return Manifest(
            step=self._step,
            world_size=collective.world_size(),
            torch_version=torch.__version__,
            files=files,
            parameters={
                name.removeprefix("model."): ParameterRecord(
                    tuple(entry.size), dtype_name(entry.properties.dtype)
                )
                for name, entry in tensors
                if name.startswith("model.")
            },
            optimizer=record.kind if record else None,
        )

    def _publish(self, manifest: Manifest) -> None:
        manifest.write(self._partial)
        layout.publish(self._partial, self._final)

    def _gather(self, fn: Callable[[], T]) -> list[T]:
        doing = f"saving {self._final}"
        return collective.gather(lambda: self._explained(fn), doing=doing, error=CheckpointWriteError)

    def _from_rank0(self, fn: Callable[[], T]) -> T:
        doing = f"saving {self._final}"
        return collective.from_rank0(lambda: self._explained(fn), doing=doing, error=CheckpointWriteError)

    def _explained(self, fn: Callable[[], T]) -> T:
        """Call ``fn``; a failure of the system's says how much space there was."""
        try:
            return fn()
        except OSError as error:
            space = f" ({self._space()})" if error.errno in _FULL else ""
            raise self._failure(f"{collective.describe(error)}{space}") from error

    def _failure(self, cause: str) -> CheckpointWriteError:
        return CheckpointWriteError(
            f"checkpoint {self._final} could not be written: {cause}; earlier checkpoints are untouched"
        )

    def _free(self) -> int:
        return shutil.disk_usage(self._final.parent).free

    def _space(self) -> str:
        return f"{megabytes(self._bytes_needed)} needed, {megabytes(self._free())} free"


def _write_file(path: Path, data: bytes) -> FileRecord:
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return FileRecord(len(data), new_digest(data).hexdigest())


def _to_json(trainer: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(trainer, indent=1).encode()
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"trainer state must be JSON-able: {error}") from error


def _to_bytes(state: Mapping[str, Any], name: str) -> bytes:
    """Serialise ``state`` and make sure that it can be read back without trusting pickles."""
    buffer = io.BytesIO()
    try:
        torch.save(dict(state), buffer)
        buffer.seek(0)
        torch.load(buffer, weights_only=True)
    except Exception as error:
        raise CheckpointError(
            f"{name} state must be tensors and plain Python values: {collective.describe(error)}"
        ) from error
    return buffer.getvalue()
