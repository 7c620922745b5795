"""``parquet``: row groups are read when a document of theirs is needed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from titan_pretrain.data.files import data_files
from titan_pretrain.data.identity import files_identity
from titan_pretrain.data.records import missing_key
from titan_pretrain.data.source import IndexedSource
from titan_pretrain.errors import DataError

__all__ = ["ParquetSource"]

_CACHE_BYTES = 128 << 20


class ParquetSource(IndexedSource):
    """Parquet files; a document is a row.

    A row group is decoded as a whole, so the shuffled order keeps its rows near each other
    (:attr:`blocks`), and the last few groups stay in memory.

    Args:
        patterns: ``data.path``.
        key: ``data.text_key``, a column of strings.

    Raises:
        UsageError: ``patterns`` names no file.
        DataError: A file is damaged, has no such column, or there are no rows.
    """

    def __init__(self, patterns: Sequence[str], key: str) -> None:
        self.name = "parquet"
        self._key = key
        self._files = data_files("parquet", patterns, (".parquet",))
        self._groups: list[tuple[int, int]] = []  # (file, row group) of each block
        self._rows: list[int] = []
        for number, file in enumerate(self._files):
            self._add(number, file)
        if not self._rows:
            raise DataError(f"data.path ({', '.join(patterns)}): the files have no rows")
        self._ends = np.cumsum(self._rows)
        self._cache: OrderedDict[int, Any] = OrderedDict()

    def _add(self, number: int, file: Path) -> None:
        with _translated_errors(file), pq.ParquetFile(file) as handle:
            _check_column(handle.schema_arrow, self._key, file)
            metadata = handle.metadata
            rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        filled = [(group, count) for group, count in enumerate(rows) if count]
        self._groups += [(number, group) for group, _ in filled]
        self._rows += [count for _, count in filled]

    def __len__(self) -> int:
        """Return the number of rows."""
        return int(self._ends[-1])

    def __getitem__(self, index: int) -> str:
        """Return the text of a row; "" for a null.

        Raises:
            DataError: Its row group can't be read.
        """
        block = int(np.searchsorted(self._ends, index, side="right"))
        row = index - int(self._ends[block]) + self._rows[block]
        text = self._column(block)[row].as_py()
        return text if isinstance(text, str) else ""

    @property
    def blocks(self) -> Sequence[int]:
        """Rows of each row group."""
        return self._rows

    def identity(self) -> dict[str, str | int]:
        """Return number, names, sizes and a content hash of the files, and the column."""
        return files_identity(self.name, self._files) | {"documents": len(self), "column": self._key}

    def _column(self, block: int) -> Any:
        if block not in self._cache:
            self._cache[block] = self._read(block)
            while len(self._cache) > 1 and sum(c.nbytes for c in self._cache.values()) > _CACHE_BYTES:
                self._cache.popitem(last=False)
        self._cache.move_to_end(block)
        return self._cache[block]

    def _read(self, block: int) -> Any:
        number, group = self._groups[block]
        file = self._files[number]
        # The workers are the parallelism, and a forked process has no Arrow threads.
        with _translated_errors(file), pq.ParquetFile(file) as handle:
            return handle.read_row_group(group, columns=[self._key], use_threads=False).column(0)

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_cache": OrderedDict()}


@contextmanager
def _translated_errors(file: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{file} isn't a complete parquet file ({reason}); fetch or write it again") from None


def _check_column(schema: Any, key: str, file: Path) -> None:
    if key not in schema.names:
        raise missing_key(key, schema.names, str(file))
    kind = schema.field(key).type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)):
        raise DataError(f"{file}: data.text_key ({key}) is a column of {kind}, not of text")
