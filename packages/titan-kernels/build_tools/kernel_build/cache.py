"""Results of earlier compilations, kept by the hash of everything they depend on."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path

from kernel_build.compile_unit import UnitImages

__all__ = ["ENVIRONMENT", "Cache", "default_folder"]

ENVIRONMENT = "TITAN_CACHE"
"""Names the folder in which all of Titan's caches lie."""
_KEEP_SECONDS = 60 * 24 * 3600
_DAMAGED = (OSError, KeyError, ValueError, zipfile.BadZipFile)


def default_folder(environment: Mapping[str, str], build: Path) -> Path:
    """``kernels`` in the folder the environment names, else in the user's cache folder, else in ``build``."""
    try:
        user = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "titan"
    except RuntimeError:  # a user without an entry in the system's list
        user = build
    folder = Path(environment.get(ENVIRONMENT) or user) / "kernels"
    return folder if _writable(folder) else build / "compiled"


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


class Cache:
    """A folder of results; several builds may use it at once."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def get(self, key: str) -> UnitImages | None:
        """The result kept under ``key``; a damaged file counts as none."""
        path = self._folder / f"{key}.zip"
        try:
            with zipfile.ZipFile(path) as file:
                kernels = json.loads(file.read("kernels.json"))
                images = UnitImages(file.read("cubin.xz"), file.read("ptx.xz"), kernels)
            path.touch()
        except _DAMAGED:
            return None
        return images

    def put(self, key: str, images: UnitImages) -> None:
        """Keep a result; readers see all of it or nothing."""
        handle, name = tempfile.mkstemp(dir=self._folder, suffix=".part")
        with os.fdopen(handle, "wb") as raw, zipfile.ZipFile(raw, "w") as file:
            file.writestr("kernels.json", json.dumps(images.kernels))
            file.writestr("cubin.xz", images.cubin)
            file.writestr("ptx.xz", images.ptx)
        Path(name).replace(self._folder / f"{key}.zip")

    def prune(self) -> None:
        """Delete what no build has used for 60 days."""
        oldest = time.time() - _KEEP_SECONDS
        for path in [*self._folder.glob("*.zip"), *self._folder.glob("*.part")]:
            # Another build may be faster.
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < oldest:
                    path.unlink()
