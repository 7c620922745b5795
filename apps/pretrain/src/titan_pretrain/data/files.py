"""From ``data.path`` to files."""

from __future__ import annotations

import glob
import hashlib
from collections.abc import Sequence
from pathlib import Path

from titan_pretrain.errors import DataError, UsageError

__all__ = ["data_files", "files_identity"]


def data_files(dataset: str, patterns: Sequence[str], suffixes: Sequence[str]) -> list[Path]:
    """Expand files, folders (searched recursively for ``suffixes``) and globs, sorted and unique.

    Args:
        dataset: ``data.dataset``, for messages.
        patterns: ``data.path``.
        suffixes: Endings a file of a folder must have, for example ``(".jsonl", ".jsonl.gz")``.

    Raises:
        UsageError: ``data.path`` is missing, or names nothing.
        DataError: A file can't be read.
    """
    if not patterns:
        raise UsageError(f"data.path is missing: data.dataset ({dataset}) needs files, folders or globs")
    files = {file for pattern in patterns for file in _expand(pattern, suffixes)}
    for file in files:
        _check_readable(file)
    return sorted(files)


def _expand(pattern: str, suffixes: Sequence[str]) -> list[Path]:
    path = Path(pattern).expanduser()
    if path.is_dir():
        found = [file for file in path.rglob("*") if file.name.endswith(tuple(suffixes)) and file.is_file()]
        if not found:
            raise UsageError(f"data.path ({pattern}): the folder has no {' or '.join(suffixes)} file")
        return found
    if path.exists() and not path.is_file():
        raise UsageError(f"data.path ({pattern}) is a pipe or a device; datasets are read again and again")
    if path.exists():
        return [path]
    matches = glob.glob(str(path), recursive=True)  # noqa: PTH207 - Path.glob refuses absolute patterns
    found = [file for file in map(Path, matches) if file.is_file()]
    if not found:
        what = "matches no file" if glob.has_magic(pattern) else "doesn't exist"
        raise UsageError(f"data.path ({pattern}) {what}; relative paths start at {Path.cwd()}")
    return found


def _check_readable(file: Path) -> None:
    try:
        with file.open("rb"):
            pass
    except OSError as error:
        raise DataError(f"data.path ({file}) can't be read: {error.strerror}") from None


def files_identity(dataset: str, files: Sequence[Path]) -> dict[str, str | int]:
    """Return an identity by file names and sizes: a folder may move between two runs."""
    sizes = [file.stat().st_size for file in files]
    names = ",".join(f"{file.name}:{size}" for file, size in zip(files, sizes, strict=True))
    return {"dataset": dataset, "files": len(files), "bytes": sum(sizes), "content": _short_hash(names)}


def _short_hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
