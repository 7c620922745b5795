"""``python-stdlib``: real text that is on every machine with Python.

The sources of the standard library and the topics of ``pydoc`` (``help("EXPRESSIONS")``), so that the
first run needs neither a download nor a bundled corpus.
"""

from __future__ import annotations

import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from titan_pretrain.data.source import ListSource
from titan_pretrain.errors import DataError

__all__ = ["stdlib_source"]

# Tests and generated tables are poor text; the rest is packaged apart from Python by Linux
# distributions, and the dataset should be the same wherever the Python version is.
_LEFT_OUT = frozenset(
    {
        "__pycache__",
        "dist-packages",
        "distutils",
        "encodings",
        "ensurepip",
        "idlelib",
        "lib2to3",
        "pydoc_data",
        "site-packages",
        "test",
        "tests",
        "tkinter",
        "turtledemo",
    }
)
_MACHINE_SPECIFIC = ("_sysconfigdata", "sitecustomize")


def stdlib_source(folder: Path | None = None) -> ListSource:
    """Read the standard library.

    Args:
        folder: Folder of the library; default this interpreter's.

    Raises:
        DataError: The interpreter has no readable sources (a zipped or stripped installation).
    """
    root = folder or Path(sysconfig.get_path("stdlib"))
    documents = [*_sources(root), *_topics()] if root.is_dir() else []
    if not documents:
        raise DataError(
            f"data.dataset (python-stdlib): {root} has no Python sources; "
            "use data.dataset = 'text' with data.path"
        )
    return ListSource("python-stdlib", documents)


def _sources(root: Path) -> Iterator[str]:
    for file in sorted(_files(root), key=lambda file: file.relative_to(root).as_posix()):
        # Latin-1 sources and unreadable files are no fault of the user's.
        with suppress(OSError, UnicodeDecodeError):
            yield file.read_bytes().decode()


def _files(folder: Path) -> Iterator[Path]:
    for entry in folder.iterdir():
        if entry.name in _LEFT_OUT:
            continue
        if entry.is_dir():
            yield from _files(entry)
        elif entry.suffix == ".py" and not entry.name.startswith(_MACHINE_SPECIFIC):
            yield entry


def _topics() -> list[str]:
    try:
        from pydoc_data.topics import topics
    except ImportError:  # some distributions package it apart
        return []
    return [topics[key] for key in sorted(topics)]
