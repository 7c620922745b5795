"""Kernel units: their files, and what a change of them means for kept results."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from pathlib import Path

__all__ = ["find_units", "fingerprint", "included_files"]

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)


def find_units(ops: Path) -> dict[str, Path]:
    """Kernel files by unit: ``ops/<unit>/kernel.cu``."""
    return {path.parent.name: path for path in sorted(ops.glob("*/kernel.cu"))}


def included_files(source: Path, includes: Iterable[Path]) -> list[Path]:
    """``source`` and all it includes from its own folder and ``includes``, each once.

    Conditions are not evaluated, so the answer can only be too large.  Headers found nowhere are
    those of the toolchain, whose version counts in :func:`fingerprint`.
    """
    found = [source]
    for path in found:
        for _, name in _INCLUDE.findall(path.read_text(encoding="utf-8")):
            candidates = (folder / name for folder in (path.parent, *includes))
            hit = next((each for each in candidates if each.is_file()), None)
            if hit is not None and hit not in found:
                found.append(hit)
    return found


def fingerprint(source: Path, includes: tuple[Path, ...], facts: dict[str, object]) -> str:
    """Hash of the contents of all files of a unit and of ``facts`` (options, versions).

    Paths do not count: another checkout with the same text has the same results.
    """
    digest = hashlib.sha256(json.dumps(facts, sort_keys=True).encode())
    for path in included_files(source, includes):
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
