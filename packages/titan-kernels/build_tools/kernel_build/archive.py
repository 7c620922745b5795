"""The file that the extension embeds: a zip of compressed images and ``images.json``."""

from __future__ import annotations

import json
import lzma
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kernel_build.compile_unit import UnitImages

__all__ = ["INDEX", "write_archive"]

INDEX = "images.json"
# What is known of PTX; the rest is decided by the driver that compiles it.
_KNOWN_OF_PTX = ("parameters", "max_threads", "static_shared")
_EPOCH = (1980, 1, 1, 0, 0, 0)  # a fixed date: equal contents give equal files


def write_archive(
    path: Path,
    compiled: Mapping[tuple[str, int], UnitImages],
    images: Sequence[str],
    fingerprints: Mapping[str, str],
) -> dict[str, Any]:
    """Write the archive and return its index.

    Args:
        path: Where to; a file that already has the same contents keeps its date, so nothing that
            depends on it is built again.
        compiled: Results by unit and architecture number.
        images: Which images to ship: ``sm_<number>`` (cubin) and ``compute_<number>`` (PTX).
        fingerprints: By unit, the hash of its sources.

    The index maps unit and image to ``{"size": bytes, "sources": hash, "kernels": {name: description}}``;
    the description of a kernel in PTX has no registers and no instructions.
    """
    index: dict[str, Any] = {}
    members: dict[str, bytes] = {}
    for (unit, number), result in sorted(compiled.items()):
        described = {f"sm_{number}": result.kernels, f"compute_{number}": _ptx_kernels(result)}
        packed = {f"sm_{number}": result.cubin, f"compute_{number}": result.ptx}
        for image in described.keys() & set(images):
            members[f"{unit}/{image}.xz"] = packed[image]
            index.setdefault(unit, {})[image] = {
                "size": len(lzma.decompress(packed[image])),
                "sources": fingerprints[unit],
                "kernels": described[image],
            }
    members[f"{INDEX}.xz"] = lzma.compress(json.dumps(index, sort_keys=True).encode())
    _write_if_changed(path, members)
    return index


def _ptx_kernels(result: UnitImages) -> dict[str, dict[str, Any]]:
    return {name: {fact: kernel[fact] for fact in _KNOWN_OF_PTX} for name, kernel in result.kernels.items()}


def _write_if_changed(path: Path, members: Mapping[str, bytes]) -> None:
    partial = path.with_suffix(".part")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_STORED) as file:
        for name, data in sorted(members.items()):
            file.writestr(zipfile.ZipInfo(name, _EPOCH), data)
    if path.is_file() and path.read_bytes() == partial.read_bytes():
        partial.unlink()
    else:
        partial.replace(path)
