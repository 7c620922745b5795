"""``jsonl``: one JSON object per line, plain or compressed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from titan_pretrain.data.compressed import compression, read_lines
from titan_pretrain.data.files import data_files
from titan_pretrain.data.identity import files_identity
from titan_pretrain.data.records import parse_json
from titan_pretrain.data.source import DocumentSource, IndexedSource, Json, PartReader, StreamSource
from titan_pretrain.data.text import decode_utf8
from titan_pretrain.errors import DataError

__all__ = ["JsonlSource", "JsonlStream", "jsonl_source"]

_SUFFIXES = (".jsonl", ".ndjson", ".jsonl.gz", ".jsonl.zst", ".json.gz", ".json.zst")
_SCAN_CHUNK = 16 << 20
_BOM = "\ufeff"


def jsonl_source(name: str, patterns: Sequence[str], key: str) -> DocumentSource:
    """Open jsonl files: indexed if all are plain, otherwise a stream of files.

    Args:
        name: ``data.dataset``.
        patterns: ``data.path``.
        key: ``data.text_key``.

    Raises:
        UsageError: ``patterns`` names no file, or a package to decompress them is missing.
        DataError: No file has a line, or the first one is damaged.
    """
    files = [file for file in data_files(name, patterns, _SUFFIXES) if file.stat().st_size]
    if not files:
        raise DataError(f"data.path ({', '.join(patterns)}): every file is empty")
    stream = JsonlStream(name, files, key)
    for text in stream.open(0):  # shows a damaged file and a wrong key before the run starts
        if text:
            break
    plain = all(compression(file) is None for file in files)
    return JsonlSource(name, files, key) if plain else stream


class JsonlSource(IndexedSource):
    """Plain jsonl files; a document is a line.

    The line starts are found by one scan when they are first needed, at about the speed of the disk.
    """

    def __init__(self, name: str, files: Sequence[Path], key: str) -> None:
        self.name = name
        self._files = files
        self._key = key

    @cached_property
    def _starts(self) -> list[npt.NDArray[np.int64]]:
        return [_line_starts(file) for file in self._files]

    @cached_property
    def _ends(self) -> npt.NDArray[np.int64]:
        return np.cumsum([len(starts) - 1 for starts in self._starts])

    def __len__(self) -> int:
        """Return the number of lines."""
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> str:
        """Return the text of a line; "" for a blank one.

        Raises:
            DataError: The line can't be read, isn't JSON or has no text.
        """
        number = int(np.searchsorted(self._ends, index, side="right"))
        line = index - (int(self._ends[number - 1]) if number else 0)
        file, starts = self._files[number], self._starts[number]
        start, end = int(starts[line]), int(starts[line + 1])
        try:
            with file.open("rb") as handle:
                handle.seek(start)
                data = handle.read(end - start)
        except OSError as error:
            raise DataError(f"{file} can't be read: {error.strerror}") from None
        return _parse(decode_utf8(data, file, start), self._key, file, line)

    def identity(self) -> dict[str, str | int]:
        """Return number, names, sizes and a content hash of the files."""
        return files_identity(self.name, self._files) | {"documents": len(self)}


def _line_starts(file: Path) -> npt.NDArray[np.int64]:
    """Return the offset of every line of ``file``, and its size."""
    starts = [np.zeros(1, dtype=np.int64)]
    offset = 0
    try:
        with file.open("rb") as handle:
            while chunk := handle.read(_SCAN_CHUNK):
                newlines = np.flatnonzero(np.frombuffer(chunk, dtype=np.uint8) == ord("\n"))
                starts.append(newlines + offset + 1)
                offset += len(chunk)
    except OSError as error:
        raise DataError(f"{file} can't be read: {error.strerror}") from None
    found = np.concatenate(starts)
    return found if found[-1] == offset else np.append(found, offset)


class JsonlStream(StreamSource):
    """Jsonl files of which some are compressed; a part is a file."""

    def __init__(self, name: str, files: Sequence[Path], key: str) -> None:
        self.name = name
        self._files = files
        self._key = key

    @property
    def num_parts(self) -> int:
        """Number of files."""
        return len(self._files)

    def open(self, part: int, state: Json = None) -> PartReader:  # noqa: ARG002 - can't seek
        """Open a file at its start."""
        return _JsonlReader(self._files[part], self._key)

    def identity(self) -> dict[str, str | int]:
        """Return number, names, sizes and a content hash of the files."""
        return files_identity(self.name, self._files)


class _JsonlReader(PartReader):
    """The texts of one file's lines; "" for a blank line, so that lines are counted alike everywhere."""

    def __init__(self, file: Path, key: str) -> None:
        self._file = file
        self._key = key
        self._lines = enumerate(read_lines(file))
        self._offset = 0

    def __next__(self) -> str:
        number, line = next(self._lines)
        text = decode_utf8(line, self._file, self._offset)
        self._offset += len(line)
        return _parse(text, self._key, self._file, number)

    def skip(self, count: int) -> None:
        """Pass over lines without parsing them."""
        self._offset += sum(len(line) for _, line in islice(self._lines, count))


def _parse(line: str, key: str, file: Path, number: int) -> str:
    if number == 0:
        line = line.removeprefix(_BOM)
    return parse_json(line, key, f"{file}:{number + 1}")
