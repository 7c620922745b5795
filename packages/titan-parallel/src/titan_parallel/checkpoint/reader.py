"""Reading a checkpoint without a process group or a model: for export, inspection and verification."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import MetadataIndex, TensorStorageMetadata

from titan_parallel.checkpoint import collective, dcp
from titan_parallel.checkpoint.manifest import Manifest, check_files
from titan_parallel.checkpoint.state import listed
from titan_parallel.checkpoint.writer import TRAINER
from titan_parallel.errors import CheckpointCorruptError, CheckpointError, CheckpointMismatchError

__all__ = ["CheckpointReader", "Section", "TensorInfo", "verify"]

Section = Literal["model", "optim"]


@dataclass(frozen=True)
class TensorInfo:
    """One stored tensor, as a whole.

    Attributes:
        name: fully qualified; for optimizer state ``<parameter>.<key>``.
        shape: full shape.
        dtype: stored dtype.
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Size of the data in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize


class CheckpointReader:
    """A checkpoint, tensor by tensor; memory holds one tensor at a time.

    Hashes aren't checked here: see :func:`verify`.

    Args:
        path: a checkpoint folder.

    Raises:
        CheckpointNotFoundError: no such folder.
        CheckpointCorruptError: the manifest or DCP's metadata are missing or damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = Path(path)
        self.manifest = Manifest.read(self.path)
        self._reader = dcp.SafeReader(self.path)
        self._tensors = dcp.tensor_records(self._reader.read_metadata())

    @property
    def step(self) -> int:
        """Training step."""
        return self.manifest.step

    def trainer(self) -> dict[str, Any]:
        """The trainer's state at the save.

        Raises:
            CheckpointCorruptError: the file is missing or damaged.
        """
        path = self.path / TRAINER
        try:
            state: dict[str, Any] = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            raise CheckpointCorruptError(f"{path} can't be read: {collective.describe(error)}") from error
        return state

    def iterate_tensors(self, section: Section = "model") -> Iterator[TensorInfo]:
        """The stored tensors, by name, without reading them."""
        for name, record in self.records(section).items():
            yield TensorInfo(name, tuple(record.size), record.properties.dtype)

    def records(self, section: Section) -> Mapping[str, TensorStorageMetadata]:
        """DCP's records of a section by name."""
        prefix = f"{section}."
        return {n.removeprefix(prefix): r for n, r in sorted(self._tensors.items()) if n.startswith(prefix)}

    def read_tensor(self, name: str, section: Section = "model") -> Tensor:
        """One whole tensor, on the CPU.

        Raises:
            CheckpointMismatchError: the checkpoint has no such tensor.
            CheckpointCorruptError: its data can't be read.
        """
        record = self._tensors.get(f"{section}.{name}")
        if record is None:
            raise CheckpointMismatchError(
                f"checkpoint {self.path} has no tensor {name} in its {section} state"
            )
        tensor = torch.empty(record.size, dtype=record.properties.dtype)
        try:
            dcp.load({section: {name: tensor}}, self._reader, alone=True)
        except dcp.CheckpointException as failed:
            cause = next(error for error, _ in failed.failures.values())
            raise CheckpointCorruptError(
                f"checkpoint {self.path}: {name} can't be read: {collective.describe(cause)}"
            ) from failed
        return tensor

    def storage_problems(self) -> list[str]:
        """Tensors whose stored shards are incomplete or outside their files, in words."""
        problems = []
        storage = self._reader.read_metadata().storage_data or {}
        for name, record in self._tensors.items():
            if sum(math.prod(chunk.sizes) for chunk in record.chunks) != math.prod(record.size):
                problems.append(f"{name}: its shards don't add up to its shape {list(record.size)}")
            for chunk in record.chunks:
                place = storage.get(MetadataIndex(name, chunk.offsets))
                file = self.manifest.files.get(place.relative_path) if place else None
                if place is None or file is None or place.offset + place.length > file.bytes:
                    problems.append(f"{name}: the shard at {list(chunk.offsets)} is in none of the files")
        return problems


def verify(path: Path) -> list[str]:
    """Check a checkpoint from end to end: hashes, shards, names and shapes, finite values.

    Reads every byte, and one tensor at a time into memory.

    Args:
        path: a checkpoint folder.

    Returns:
        The problems found, one line each; none for a sound checkpoint.  Values are looked at only when
        the files are sound.
    """
    try:
        reader = CheckpointReader(path)
    except CheckpointError as error:
        return [str(error)]
    problems = check_files(reader.path, reader.manifest, reader.manifest.files, hashes=True)
    problems += reader.storage_problems()
    problems += _parameter_problems(reader)
    return problems or _value_problems(reader)  # values of damaged files say nothing


def _parameter_problems(reader: CheckpointReader) -> list[str]:
    stored = {info.name: info.shape for info in reader.iterate_tensors()}
    absent = [n for n, record in reader.manifest.parameters.items() if stored.get(n) != record.shape]
    return [f"{len(absent)} parameters aren't stored as listed ({listed(absent)})"] if absent else []


def _value_problems(reader: CheckpointReader) -> list[str]:
    problems = []
    sections: tuple[Section, ...] = ("model", "optim")
    for section in sections:
        for info in reader.iterate_tensors(section):
            try:
                tensor = reader.read_tensor(info.name, section)
            except CheckpointError as error:
                problems.append(str(error))
                continue
            bad = int((~torch.isfinite(tensor)).sum())
            if bad:
                problems.append(f"{section} {info.name} has {bad} values that aren't finite")
    return problems
