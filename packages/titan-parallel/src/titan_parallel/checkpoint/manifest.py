"""The manifest of a checkpoint: what it holds, and how to tell that it still does.

DCP has no checksums: an edited or half-overwritten payload loads without a word.  The manifest
lists every file with its size and hash and the model's parameter names, shapes and dtypes; it is
written last and carries a checksum of itself.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from titan_parallel.errors import CheckpointCorruptError, CheckpointNotFoundError

__all__ = ["FileRecord", "Manifest", "ParameterRecord", "check_files", "file_digest", "new_digest"]

NAME = "manifest.json"
_FORMAT = "titan-parallel checkpoint"
_VERSION = 1
_CHUNK = 1 << 22
_THREADS = 4  # hashlib releases the GIL on large buffers


@dataclass(frozen=True)
class FileRecord:
    """Size and hash (BLAKE2b, 256 bits, hex) of one file."""

    bytes: int
    blake2b: str


@dataclass(frozen=True)
class ParameterRecord:
    """Shape and dtype (``"float32"``) of one parameter or buffer, as a whole."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint holds.

    Attributes:
        step: training step.
        world_size: ranks that wrote it.
        torch_version: PyTorch that wrote it.
        files: every file but the manifest, by name.
        parameters: the model's parameters and persistent buffers, by fully qualified name.
        optimizer: class name of the optimizer, None when none was saved.
    """

    step: int
    world_size: int
    torch_version: str
    files: Mapping[str, FileRecord]
    parameters: Mapping[str, ParameterRecord]
    optimizer: str | None

    def write(self, folder: Path) -> None:
        """Write ``manifest.json`` to stable storage."""
        content = {"format": _FORMAT, "version": _VERSION, **asdict(self)}
        content["checksum"] = _checksum(content)
        with (folder / NAME).open("w") as file:
            json.dump(content, file, indent=1)
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def read(cls, folder: Path) -> Manifest:
        """Read and check ``manifest.json``.

        Raises:
            CheckpointNotFoundError: ``folder`` is no folder.
            CheckpointCorruptError: the manifest is missing, damaged, or of a later format.
        """
        if not folder.is_dir():
            raise CheckpointNotFoundError(f"checkpoint ({folder}) doesn't exist")
        path = folder / NAME
        try:
            content = json.loads(path.read_text())
        except OSError as error:
            raise CheckpointCorruptError(f"{path}: {error.strerror}") from error
        except ValueError as error:
            raise CheckpointCorruptError(f"{path} is damaged: {error}") from error
        return cls._parse(path, content)

    @classmethod
    def _parse(cls, path: Path, content: Any) -> Manifest:
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise CheckpointCorruptError(f"{path} is damaged or of another program: it isn't a {_FORMAT}")
        if content.pop("checksum", None) != _checksum(content):
            raise CheckpointCorruptError(f"{path} is damaged: its content doesn't match its checksum")
        if content["version"] != _VERSION:
            raise CheckpointCorruptError(
                f"{path}: format version {content['version']}, this program reads {_VERSION}; "
                "use the torch-titan-parallel it was written with, or a newer one"
            )
        return cls(
            step=content["step"],
            world_size=content["world_size"],
            torch_version=content["torch_version"],
            files={name: FileRecord(**record) for name, record in content["files"].items()},
            parameters={
                name: ParameterRecord(tuple(record["shape"]), record["dtype"])
                for name, record in content["parameters"].items()
            },
            optimizer=content["optimizer"],
        )


def _checksum(content: Mapping[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return new_digest(canonical.encode()).hexdigest()


def new_digest(data: bytes = b"") -> hashlib.blake2b:
    """The hash that manifests use."""
    return hashlib.blake2b(data, digest_size=32)


def file_digest(path: Path) -> str:
    """Hash of a file's content, read in pieces."""
    digest = new_digest()
    with path.open("rb", buffering=0) as file:
        while block := file.read(_CHUNK):
            digest.update(block)
    return digest.hexdigest()


def check_files(folder: Path, manifest: Manifest, names: Iterable[str], *, hashes: bool) -> list[str]:
    """Compare files with the manifest.

    Args:
        folder: the checkpoint.
        manifest: its manifest.
        names: the files to look at.
        hashes: read their contents too, not just their sizes.

    Returns:
        One line for each file that is missing, truncated or changed.
    """
    with ThreadPoolExecutor(_THREADS) as pool:
        problems = pool.map(lambda name: _check_file(folder / name, manifest.files[name], hashes), names)
        return [problem for problem in problems if problem]


def _check_file(path: Path, record: FileRecord, hashes: bool) -> str | None:
    try:
        size = path.stat().st_size
        if size < record.bytes:
            return f"{path} is truncated ({size} of {record.bytes} bytes)"
        if size > record.bytes:
            return f"{path} is too long ({size} instead of {record.bytes} bytes)"
        if hashes and file_digest(path) != record.blake2b:
            return f"{path} has changed: its content doesn't match its checksum"
    except FileNotFoundError:
        return f"{path} is missing"
    except OSError as error:
        return f"{path} can't be read: {error.strerror}"
    return None
