"""torch.distributed.checkpoint, quietly, with hashes taken while writing and no pickles trusted.

Files are DCP's own (``.metadata`` and ``__<rank>_0.distcp``), so its stock tools read them too.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.logger import _dcp_logger
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save

from titan_parallel.checkpoint.manifest import FileRecord, new_digest
from titan_parallel.errors import CheckpointCorruptError

__all__ = ["CheckpointException", "HashingWriter", "SafeReader", "load", "save", "tensor_records"]

METADATA = ".metadata"


class _HashingStream:
    """A binary file that hashes what is written to it."""

    def __init__(self, file: IO[bytes], failures: list[OSError]) -> None:
        self._file = file
        self._failures = failures
        self.digest: hashlib.blake2b = new_digest()
        self.size = 0

    def write(self, data: Any) -> int:
        self.digest.update(data)
        self.size += memoryview(data).nbytes
        try:
            return self._file.write(data)
        except OSError as error:
            # torch.save turns it into a RuntimeError ("unexpected pos") that doesn't say why.
            self._failures.append(error)
            raise

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        self._file.flush()

    def fileno(self) -> int:
        self._file.flush()  # DCP asks for it to fsync, not always after a flush
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()


class _HashingFileSystem(FileSystem):
    def __init__(self) -> None:
        self.records: dict[str, FileRecord] = {}
        self.failures: list[OSError] = []

    @contextlib.contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        with Path(path).open(mode) as file:
            stream = _HashingStream(file, self.failures)
            yield stream
        self.records[Path(path).name] = FileRecord(stream.size, stream.digest.hexdigest())

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        super().rename(path, new_path)
        self.records[Path(new_path).name] = self.records.pop(Path(path).name)


class HashingWriter(FileSystemWriter):
    """A DCP writer that knows the sizes and hashes of the files this rank wrote.

    One thread only: DCP loses the exceptions of further writer threads, and with them the data.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, thread_count=1, sync_files=True)
        self._hashing = _HashingFileSystem()
        self.fs = self._hashing

    @property
    def records(self) -> dict[str, FileRecord]:
        """What this rank has written, by file name."""
        return self._hashing.records

    @property
    def os_error(self) -> OSError | None:
        """What the system said when a write failed on this rank."""
        return next(iter(self._hashing.failures), None)

    def storage_meta(self) -> StorageMeta:
        """No path: it would name the temporary folder, in a pickle that depends on Python's version."""
        return StorageMeta(save_id=self.save_id)


# All that a `.metadata` pickle needs; a pickle that asks for more is no checkpoint of ours.
_ALLOWED = {
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    *(
        ("torch.distributed.checkpoint.metadata", name)
        for name in (
            "BytesStorageMetadata",
            "ChunkStorageMetadata",
            "Metadata",
            "MetadataIndex",
            "StorageMeta",
            "TensorProperties",
            "TensorStorageMetadata",
            "_MEM_FORMAT_ENCODING",
        )
    ),
}


class _MetadataUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ALLOWED:
            return super().find_class(module, name)
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        raise pickle.UnpicklingError(f"{module}.{name} doesn't belong into checkpoint metadata")


class SafeReader(FileSystemReader):
    """A DCP reader that reads ``.metadata`` once and builds nothing but metadata from it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._metadata: Metadata | None = None

    def read_metadata(self, *_args: Any, **_kwargs: Any) -> Metadata:
        """The checkpoint's metadata.

        Raises:
            CheckpointCorruptError: it is missing or damaged.
        """
        if self._metadata is None:
            path = Path(self.path) / METADATA
            try:
                with path.open("rb") as file:
                    self._metadata = _MetadataUnpickler(file).load()
            except Exception as error:  # a damaged pickle can raise nearly anything
                raise CheckpointCorruptError(f"{path} can't be read: {error}") from error
        return self._metadata


def tensor_records(metadata: Metadata) -> dict[str, TensorStorageMetadata]:
    """Shape, dtype and chunks of each tensor, by DCP's flattened name."""
    entries = metadata.state_dict_metadata.items()
    return {name: entry for name, entry in entries if isinstance(entry, TensorStorageMetadata)}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No warnings, and no tracebacks as log records: our errors say what matters."""
    with warnings.catch_warnings():  # "torch.distributed is uninitialized, assuming ..."
        warnings.simplefilter("ignore")
        disabled, _dcp_logger.disabled = _dcp_logger.disabled, True
        try:
            yield
        finally:
            _dcp_logger.disabled = disabled


def save(state: dict[str, Any], writer: HashingWriter) -> Metadata:
    """Write the tensors of ``state`` (nested dicts), each rank its shards; collective.

    Raises:
        torch.distributed.checkpoint.CheckpointException: on all ranks, when a rank failed.
        RuntimeError: a rank died.
    """
    with _quiet():
        metadata: Metadata = dcp_save(state, storage_writer=writer, no_dist=not dist.is_initialized())
    return metadata


def load(state: dict[str, Any], reader: SafeReader, *, alone: bool = False) -> None:
    """Fill the tensors of ``state`` in place, reading just the parts this rank holds; collective.

    Args:
        state: nested dicts of tensors; dtypes that differ are cast.
        reader: the checkpoint.
        alone: this process reads for itself, whatever process group there is.
    """
    with _quiet():
        dcp_load(state, storage_reader=reader, no_dist=alone or not dist.is_initialized())
