"""Whether the kernels of this copy of the package were compiled from the sources that lie beside them.

An editable install keeps the machine code it was built with, while the emulator compiles the sources as
they are now: what the one says must not be put together with what the other says.
"""

from __future__ import annotations

import hashlib

from titan_kernels import images
from titan_kernels.emulator import include_directories, included_files, unit_source

__all__ = ["changed", "fingerprint"]


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
    # Of the package's own: the machine code has nothing of the emulator's headers.
    for path in included_files(unit_source(unit), include_directories()[:1]):
        digest.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()
