"""From ``data.path`` to files."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from pathlib import Path

from titan_pretrain.errors import DataError, UsageError

__all__ = ["data_files"]


def data_files(dataset: str, patterns: Sequence[str], suffixes: Sequence[str]) -> list[Path]:
    """Expand files, folders (searched recursively for ``suffixes``) and globs, sorted and unique.

    Symbolic links are followed.  A file that several names lead to is taken once, under the first name.

    Args:
        dataset: ``data.dataset``, for messages.
        patterns: ``data.path``.
        suffixes: Endings a file of a folder must have, for example ``(".jsonl", ".jsonl.gz")``.

    Raises:
        UsageError: ``data.path`` is missing, or names nothing.
        DataError: A file or folder can't be read.
    """
    if not patterns:
        raise UsageError(f"data.path is missing: data.dataset ({dataset}) needs files, folders or globs")
    found = sorted({file for pattern in patterns for file in _expand(pattern, suffixes)})
    folders = {folder: folder.resolve() for folder in {file.parent for file in found}}
    files: dict[Path, Path] = {}
    for file in found:
        files.setdefault(file.resolve() if file.is_symlink() else folders[file.parent] / file.name, file)
    for file in files.values():
        _check_readable(file)
    return list(files.values())


def _expand(pattern: str, suffixes: Sequence[str]) -> list[Path]:
    path = Path(pattern).expanduser()
    if path.is_dir():
        entries = (entry for folder in _folders(path) for entry in _entries(folder))
        found = [file for file in entries if file.name.endswith(tuple(suffixes)) and file.is_file()]
        if not found:
            raise UsageError(f"data.path ({pattern}): the folder has no {' or '.join(suffixes)} file")
        return found
    if path.exists() and not path.is_file():
        raise UsageError(f"data.path ({pattern}) is a pipe or a device; datasets are read again and again")
    if path.exists():
        return [path]
    found = [file for file in _matches(path) if file.is_file()]
    if not found:
        what = "matches no file" if glob.has_magic(pattern) else "doesn't exist"
        raise UsageError(f"data.path ({pattern}) {what}; relative paths start at {Path.cwd()}")
    return found


def _matches(pattern: Path) -> Iterator[Path]:
    """Like ``glob.glob(recursive=True)``, which goes round links that form a loop forty times."""
    parts = pattern.parts
    if "**" not in parts:
        yield from map(Path, glob.glob(str(pattern)))  # noqa: PTH207 - Path.glob refuses absolute patterns
        return
    stars = parts.index("**")
    rest = parts[stars + 1 :] or ("*",)
    for start in glob.glob(str(Path(*parts[:stars]))):  # noqa: PTH207 - as above
        if Path(start).is_dir():
            for folder in _folders(Path(start), hidden=False):
                yield from _matches(Path(glob.escape(str(folder)), *rest))


def _folders(root: Path, *, hidden: bool = True) -> Iterator[Path]:
    """Yield ``root`` and the folders below it, each once however many links lead there."""
    seen: set[Path] = set()
    waiting = [root]
    while waiting:
        folder = waiting.pop()
        real = folder.resolve()
        if real in seen:
            continue
        seen.add(real)
        yield folder
        below = [entry for entry in _entries(folder) if entry.is_dir()]
        waiting += [entry for entry in reversed(below) if hidden or not entry.name.startswith(".")]


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise DataError(f"data.path: folder ({folder}) can't be read: {error.strerror}") from None


def _check_readable(file: Path) -> None:
    try:
        with file.open("rb"):
            pass
    except OSError as error:
        raise DataError(f"data.path ({file}) can't be read: {error.strerror}") from None
