"""Compiles one kernel unit for one architecture and describes its kernels."""

from __future__ import annotations

import dataclasses
import lzma
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_build import nvrtc, ptx, resources, sass, sources
from kernel_build.cubin import text_sections

__all__ = ["FORMAT", "OPTIONS", "UnitImages", "compile_unit", "key"]

FORMAT = 1
"""Raised when results change in meaning, so that kept ones of older builds are not used."""
OPTIONS = ("-std=c++17", "-default-device", "--ptxas-options=-v")
_FILES = ("ptx.py", "resources.py", "cubin.py", "sass.py", "sass_opcodes.py")


@dataclass(frozen=True)
class UnitImages:
    """One unit for one architecture.

    Attributes:
        cubin: Machine code, compressed with xz.
        ptx: The PTX it was made from, compressed with xz.
        kernels: Per kernel its parameters, resources and instruction counts, as in ``images.json``.
    """

    cubin: bytes
    ptx: bytes
    kernels: dict[str, dict[str, Any]]


def key(source: Path, number: int, includes: tuple[Path, ...]) -> str:
    """Hash of everything the result of :func:`compile_unit` depends on."""
    facts = {"format": FORMAT, "arch": number, "options": OPTIONS, "toolchain": nvrtc.versions()}
    return sources.fingerprint(source, includes, {**facts, "description": _description_hash()})


def _description_hash() -> list[str]:
    """The modules that describe a kernel count as well: what they write is kept along with the images."""
    folder = Path(__file__).parent
    return [(folder / name).read_text(encoding="utf-8") for name in _FILES]


def compile_unit(source: Path, number: int, includes: tuple[Path, ...]) -> UnitImages:
    """Compile ``source`` for ``sm_<number>``.

    Raises:
        nvrtc.CompileError: it does not compile.
        ValueError: a kernel cannot be called from Python, see :func:`kernel_build.ptx.signatures`.
    """
    arch = f"sm_{number}"
    compiled = nvrtc.compile_source(source, arch, includes, OPTIONS)
    signatures = ptx.signatures(compiled.ptx)
    needs = resources.parse_log(compiled.log)
    code = text_sections(compiled.image)
    if not signatures or not signatures.keys() == needs.keys() == code.keys():
        raise ValueError(f"{source} for {arch}: PTX, log and cubin disagree about the kernels")
    kernels = {
        name: {
            **dataclasses.asdict(signatures[name]),
            **dataclasses.asdict(needs[name]),
            "sass": sass.describe(code[name]),
        }
        for name in sorted(signatures)
    }
    shipped = ptx.for_older_drivers(compiled.ptx)
    return UnitImages(lzma.compress(compiled.image), lzma.compress(shipped.encode()), kernels)
