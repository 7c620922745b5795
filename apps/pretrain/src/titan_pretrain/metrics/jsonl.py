"""metrics.jsonl: one JSON object per logged step, in order, each step once.

Every row is written with one system call, so a kill at any moment leaves whole rows and at most one
partial row at the end, which readers and the next resume pass over.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from titan_pretrain.atomic import write_file

__all__ = ["FILE_NAME", "MetricsFile", "Row", "read_rows"]

FILE_NAME = "metrics.jsonl"
Row: TypeAlias = dict[str, Any]


def read_rows(path: Path) -> list[Row]:
    """The rows of ``path``, oldest first; none if there is no such file.

    Lines that are no JSON object with a ``step`` are passed over: they are the end of a write that
    was cut off.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return []
    return [row for line in text.splitlines() if (row := _parse(line)) is not None]


def _parse(line: str) -> Row | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) and isinstance(row.get("step"), int) else None


def to_line(values: Mapping[str, Any]) -> str:
    """One line of JSON; numbers that JSON does not know (NaN, infinities) become null."""
    finite = {name: None if _not_finite(value) else value for name, value in values.items()}
    return json.dumps(finite, allow_nan=False) + "\n"


def _not_finite(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


class MetricsFile:
    """Appends rows to metrics.jsonl.

    Args:
        path: The file; made when it is missing.
        step: The step the run continues from.  Rows after it are removed, for those steps are about
            to be done again.

    Raises:
        OSError: The file can't be written.
    """

    def __init__(self, path: Path, step: int) -> None:
        self._last = _rewind(path, step)
        self._file = path.open("r+b", buffering=0)
        self._end = self._file.seek(0, os.SEEK_END)

    def write(self, values: Row) -> None:
        """Append ``values``, or merge them into the last row if that is of the same step."""
        if self._last is not None and self._last["step"] == values["step"]:
            # The merged row begins where the old one does and is longer, so it covers it whole.
            self._end -= len(to_line(self._last).encode())
            values = {**self._last, **values}
        data = to_line(values).encode()
        self._file.seek(self._end)
        if self._file.write(data) != len(data):
            raise OSError(28, "No space left on device", str(self._file.name))
        self._end += len(data)
        self._last = values

    def close(self) -> None:
        """Close the file; what was written is on its way to the disk already."""
        self._file.close()


def _rewind(path: Path, step: int) -> Row | None:
    """Remove the rows after ``step`` in one atomic exchange; returns the last row that stays."""
    kept = list(_each_step_once(row for row in read_rows(path) if row["step"] <= step))
    write_file(path, "".join(to_line(row) for row in kept))
    return kept[-1] if kept else None


def _each_step_once(rows: Iterator[Row]) -> Iterator[Row]:
    by_step: dict[int, Row] = {}
    for row in rows:
        by_step[row["step"]] = {**by_step.get(row["step"], {}), **row}
    yield from (by_step[step] for step in sorted(by_step))
