"""Reading lines of plain, gzip and Zstandard files."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from titan_pretrain.errors import DataError

__all__ = ["compression", "read_lines"]

_BUFFER = 1 << 20
_MAGIC = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}
_SUFFIXES = {".gz": "gzip", ".zst": "zstd"}


def compression(file: Path) -> str | None:
    """Return ``"gzip"``, ``"zstd"`` or None, by the file's first bytes and then by its name."""
    with file.open("rb") as handle:
        head = handle.read(4)
    for name, magic in _MAGIC.items():
        if head.startswith(magic):
            return name
    return _SUFFIXES.get(file.suffix)


def read_lines(file: Path) -> Iterator[bytes]:
    """Yield the lines of a file, decompressed, with their line ends.

    Raises:
        DataError: The file can't be read, or its compressed data is damaged or cut off.
    """
    kind = None
    try:
        kind = compression(file)
        with _open(file, kind) as handle:
            yield from handle
    except OSError as error:
        if kind is None or error.errno:
            raise DataError(f"{file} can't be read: {error.strerror or error}") from None
        raise DataError(f"{file} is damaged {kind} data ({error}); fetch the file again") from None


def _open(file: Path, kind: str | None) -> BinaryIO:
    if kind is None:
        return file.open("rb")
    # Arrow reads consecutive members and frames, and notices a file that ends inside one.
    stream = pa.CompressedInputStream(pa.OSFile(str(file), "rb"), kind)
    return cast(BinaryIO, io.BufferedReader(stream, _BUFFER))
