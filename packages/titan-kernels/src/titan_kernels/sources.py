"""Whether the kernels of this copy of the package were compiled from the sources that lie beside them.

An editable install keeps the machine code it was built with, while the emulator compiles the sources as
they are now: what the one says must not be put together with what the other says.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from titan_kernels import images
from titan_kernels.emulator import include_directories, unit_source

__all__ = ["changed", "fingerprint"]

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)


def changed(unit: str) -> bool:
    """Whether a unit's sources are others than those of its images, or it has no images yet.

    Raises:
        TitanKernelsError: This copy of the package is not built.
    """
    return unit not in images.units() or fingerprint(unit) != images.fingerprint(unit)


def fingerprint(unit: str) -> str:
    """Hash of a unit's sources as the build computes it, see :func:`titan_kernels.images.fingerprint`.

    Raises:
        CompileError: There is no such unit.
    """
    digest = hashlib.sha256(b"{}")  # of no further facts
    for path in _files(unit_source(unit)):
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def _files(source: Path) -> list[Path]:
    """``source`` and what it includes of the package's own, without the emulator's headers."""
    found = [source]
    for path in found:
        for name in _INCLUDE.findall(path.read_text(encoding="utf-8")):
            candidates = (folder / name for folder in (path.parent, include_directories()[0]))
            hit = next((each for each in candidates if each.is_file()), None)
            if hit is not None and hit not in found:
                found.append(hit)
    return found
