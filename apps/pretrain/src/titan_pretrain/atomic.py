"""Files and folders that appear under their names when they are complete, or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["new_folder", "write_file"]


def write_file(path: Path, text: str) -> None:
    """Write a UTF-8 text file; one that exists is replaced in one step and keeps its mode.

    Args:
        path: a link to a file stays one; a device or a pipe is simply written to.
        text: its content.

    Raises:
        OSError: it can't be written; what was there is as it was.
    """
    if path.exists() and not path.is_file():
        path.write_text(text, encoding="utf-8")
        return
    path = path.resolve()
    temporary = path.with_name(f".{path.name}.writing")
    try:
        with temporary.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if path.exists():
            shutil.copymode(path, temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Give a folder to write into, which becomes ``path`` if all goes well, and vanishes otherwise.

    Args:
        path: doesn't exist, or is an empty folder; that is filled instead of replaced, for it may be the
            current folder or a file system of its own.  A link stays one, also where it leads nowhere yet.

    Raises:
        OSError: it can't be written.
    """
    path = path.resolve()
    exists = path.is_dir()
    temporary = path / ".writing" if exists else path.with_name(f".{path.name}.writing")
    try:
        shutil.rmtree(temporary, ignore_errors=True)  # of a run that was killed
        temporary.mkdir(parents=True)
        yield temporary
        if exists:
            for entry in sorted(temporary.iterdir()):
                entry.rename(path / entry.name)
            temporary.rmdir()
        else:
            temporary.rename(path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
