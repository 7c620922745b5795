"""What tells the files of a dataset from others: their names, sizes and some of their bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

from titan_pretrain.errors import DataError

__all__ = ["files_identity"]

_READ_WHOLE = 64 << 20  # bytes of all files together
_BLOCK = 4 << 10
_BLOCKS_OF_A_FILE = 16
_BLOCKS_IN_ALL = 2048


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...


def files_identity(dataset: str, files: Sequence[Path]) -> dict[str, str | int]:
    """Return an identity by file names, sizes and content.

    Neither folders nor times count: a dataset may be moved or copied between two runs.  Up to 64 MiB
    in all are hashed whole.  Of more, 4 KiB blocks are: the first, the last and up to 14 evenly spaced
    ones of a file, 2048 blocks (8 MiB) in all; of more than 1024 files those of 1024 evenly spaced
    ones.  So in large files an edit that moves no byte behind it may go unnoticed.

    Args:
        dataset: ``data.dataset``.
        files: Its files, in the order they are read in.

    Raises:
        DataError: A file can't be read.
    """
    sizes = [_size(file) for file in files]
    digest = hashlib.blake2b(digest_size=8)
    for file, size in zip(files, sizes, strict=True):
        digest.update(f"{file.name}:{size},".encode("utf-8", "surrogateescape"))
    whole = sum(sizes) <= _READ_WHOLE
    for number in range(len(files)) if whole else _spread(len(files), _BLOCKS_IN_ALL // 2):
        blocks = 0 if whole else max(2, min(_BLOCKS_OF_A_FILE, _BLOCKS_IN_ALL // len(files)))
        _add_content(digest, files[number], sizes[number], blocks)
    return {"dataset": dataset, "files": len(files), "bytes": sum(sizes), "content": digest.hexdigest()}


def _spread(count: int, wanted: int) -> Iterator[int]:
    """Yield ``wanted`` (at least 2) of the numbers below ``count``, first and last included; all of few."""
    if count <= wanted:
        yield from range(count)
    else:
        yield from (i * (count - 1) // (wanted - 1) for i in range(wanted))


def _add_content(digest: _Hash, file: Path, size: int, blocks: int) -> None:
    """Hash evenly spaced blocks of a file, from the first to the last; all of it for ``blocks`` = 0."""
    count = -(-size // _BLOCK)
    try:
        with file.open("rb", buffering=0 if blocks else -1) as handle:
            if not blocks or count <= blocks:
                while data := handle.read(1 << 20):
                    digest.update(data)
                return
            for number in _spread(count, blocks):
                handle.seek(min(number * _BLOCK, size - _BLOCK))
                digest.update(handle.read(_BLOCK))
    except OSError as error:
        raise DataError(f"{file} can't be read: {error.strerror}") from None


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError as error:
        raise DataError(f"{file} can't be read: {error.strerror}") from None
