"""``text``: UTF-8 files, large ones cut into pieces at line ends.

One big ``input.txt`` must keep every virtual shard busy, so a file larger than a piece becomes several
documents.  The cuts are found when a piece is read: nothing is scanned up front.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from titan_pretrain.data.files import data_files
from titan_pretrain.data.identity import files_identity
from titan_pretrain.data.source import IndexedSource
from titan_pretrain.errors import DataError

__all__ = ["TextSource", "decode_utf8"]

_MIN_PIECE = 4 << 10
_MAX_PIECE = 1 << 20
_WANTED_PIECES = 48 * 16  # 16 for each of the default virtual shards
_CHECK_UP_FRONT = 64 << 20  # bytes of the dataset that are decoded before a run starts
_BOM = "\ufeff"


class TextSource(IndexedSource):
    """Text files; a document is a file, or a piece of one between two line ends.

    Args:
        patterns: ``data.path``.

    Raises:
        UsageError: ``patterns`` names no file.
        DataError: The files are empty, unreadable or (looked at up to 64 MiB) not UTF-8.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self.name = "text"
        self._files = data_files("text", patterns, (".txt", ".md", ".text"))
        self._sizes = [file.stat().st_size for file in self._files]
        if not any(self._sizes):
            raise DataError(f"data.path ({', '.join(patterns)}): every file is empty")
        self._piece = _piece_bytes(self._sizes)
        self._ends = np.cumsum([_count_pieces(size, self._piece) for size in self._sizes])
        self._check_encoding()

    def __len__(self) -> int:
        """Return the number of pieces of all files."""
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> str:
        """Return a piece.

        Raises:
            DataError: The file is gone, or isn't UTF-8.
        """
        number = int(np.searchsorted(self._ends, index, side="right"))
        piece = index - (int(self._ends[number - 1]) if number else 0)
        return self._read(number, piece)

    def identity(self) -> dict[str, str | int]:
        """Return number, names, sizes and a content hash of the files."""
        return files_identity(self.name, self._files) | {"documents": len(self)}

    def _read(self, number: int, piece: int) -> str:
        file, size = self._files[number], self._sizes[number]
        try:
            with file.open("rb") as handle:
                start = _cut(handle, piece * self._piece, size, self._piece)
                end = _cut(handle, (piece + 1) * self._piece, size, self._piece)
                handle.seek(start)
                data = handle.read(end - start)
        except OSError as error:
            raise DataError(f"{file} can't be read: {error.strerror}") from None
        if len(data) < end - start:
            raise DataError(f"{file} became shorter while the run was reading it; restore it and resume")
        text = decode_utf8(data, file, start)
        return text.removeprefix(_BOM) if piece == 0 else text

    def _check_encoding(self) -> None:
        budget = _CHECK_UP_FRONT
        for number, size in enumerate(self._sizes):
            for piece in range(_count_pieces(size, self._piece)):
                if budget <= 0:
                    return
                self._read(number, piece)
                budget -= min(size, self._piece)


def decode_utf8(data: bytes, file: Path, start: int = 0) -> str:
    """Decode ``data``, found at byte ``start`` of ``file``.

    Raises:
        DataError: It isn't UTF-8; the message gives the first bad byte and its offset in the file.
    """
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        byte = data[error.start]
        raise DataError(
            f"{file} isn't UTF-8: byte 0x{byte:02x} at offset {start + error.start}; "
            f"convert it, for example: iconv -f latin1 -t utf-8 {file.name}"
        ) from None


def _piece_bytes(sizes: Sequence[int]) -> int:
    """Return the largest piece that still gives every virtual shard its share."""
    piece = _MAX_PIECE
    while piece > _MIN_PIECE and sum(_count_pieces(size, piece) for size in sizes) < _WANTED_PIECES:
        piece //= 2
    return piece


def _count_pieces(size: int, piece: int) -> int:
    return -(-size // piece)


def _cut(handle: BinaryIO, offset: int, size: int, piece: int) -> int:
    """Return the first line start behind ``offset``, or a character start if no line end is near."""
    if offset <= 0 or offset >= size:
        return min(max(offset, 0), size)
    handle.seek(offset)
    window = handle.read(min(_MIN_PIECE, piece))
    newline = window.find(b"\n")
    if newline >= 0:
        return offset + newline + 1
    starts = (i for i, byte in enumerate(window[:4]) if byte & 0xC0 != 0x80)
    return offset + next(starts, 0)
