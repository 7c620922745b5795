"""What the package was built with: kernel images per unit and architecture, and what is known of them.

    infos = images.info("rms_norm", "sm_75")
    infos["rms_norm_forward_f16_f16_warp"].registers

The facts come from the compiler's log and from the machine code, at build time; reading them needs
neither a GPU nor PyTorch.  An image is ``sm_<n>``, machine code, or ``compute_<n>``, PTX that newer
GPUs' drivers compile when a kernel is first used.
"""

from __future__ import annotations

import io
import json
import lzma
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

from titan_kernels.errors import LaunchError, TitanKernelsError

__all__ = [
    "KernelInfo",
    "Loop",
    "Signature",
    "architectures",
    "choose",
    "fingerprint",
    "info",
    "problem",
    "read",
    "signatures",
    "size",
    "units",
]


@dataclass(frozen=True)
class Loop:
    """A loop of a kernel's machine code: a backward branch and what it repeats.

    Attributes:
        begin: Address of the first instruction, bytes from the kernel's begin.
        end: Address of the branch.
        pipes: Instructions per pipe, those of inner loops included.
    """

    begin: int
    end: int
    pipes: Mapping[str, int]


@dataclass(frozen=True)
class KernelInfo:
    """Facts of one kernel for one architecture.

    Attributes:
        parameters: ``i32``, ``i64``, ``f32`` or ``bytes:N`` each; a pointer is ``bytes:8``.
        max_threads: Largest block that it is built for.
        registers: 32-bit registers per thread.
        spill_stores: Bytes per thread that did not fit into registers, written.
        spill_loads: The same, read.
        stack: Bytes of local memory per thread, spills included.
        static_shared: Bytes of shared memory per block beside the launch's dynamic ones.
        constant: Bytes of constant memory, parameters included.
        instructions: Instructions of the machine code by mnemonic; one that moves other than 32 bits
            per thread has a suffix, such as ``LDG.128``.
        pipes: The same by the unit that executes them: ``fma``, ``alu``, ``fp16``, ``fp64``,
            ``tensor``, ``mufu``, ``conversion``, ``global``, ``local``, ``shared``, ``shuffle``,
            ``constant``, ``barrier``, ``control``, ``uniform``, ``other``.
        loops: Its loops, in the order of their begins.
    """

    parameters: tuple[str, ...]
    max_threads: int
    registers: int
    spill_stores: int
    spill_loads: int
    stack: int
    static_shared: int
    constant: int
    instructions: Mapping[str, int]
    pipes: Mapping[str, int]
    loops: tuple[Loop, ...]


@dataclass(frozen=True)
class Signature:
    """What a launch needs to know; see :class:`KernelInfo`."""

    parameters: tuple[str, ...]
    max_threads: int
    static_shared: int


def units() -> tuple[str, ...]:
    """Names of the kernel units, one per op with CUDA kernels."""
    return tuple(_index())


def architectures(unit: str) -> tuple[str, ...]:
    """Images of a unit, such as ``("compute_75", "sm_70", "sm_75")``."""
    return tuple(sorted(_unit(unit)))


def info(unit: str, arch: str) -> dict[str, KernelInfo]:
    """Kernels of a unit by name, with the facts of one architecture.

    Raises:
        TitanKernelsError: there is no such image, or it is PTX, whose registers and instructions are
            the driver's choice.
    """
    kernels = _image(unit, arch)["kernels"]
    if arch.startswith("compute_"):
        raise TitanKernelsError(f"arch ({arch}) is PTX, of which only signatures are known: ask for sm_*")
    return {name: _kernel_info(facts) for name, facts in kernels.items()}


def signatures(unit: str, arch: str) -> dict[str, Signature]:
    """How the kernels in an image are called; of PTX too.

    Raises:
        TitanKernelsError: there is no such image.
    """
    names = [field.name for field in fields(Signature)]
    kernels = _image(unit, arch)["kernels"].items()
    return {name: Signature(**_tuples({key: facts[key] for key in names})) for name, facts in kernels}


def size(unit: str, arch: str) -> int:
    """Bytes of an image as it is loaded."""
    return int(_image(unit, arch)["size"])


def fingerprint(unit: str) -> str:
    """Hash of the sources that the images of a unit were made from, as the build computes it."""
    return str(_image(unit, architectures(unit)[0])["sources"])


def read(unit: str, arch: str) -> bytes:
    """An image: a cubin, or PTX.

    Raises:
        TitanKernelsError: there is no such image.
    """
    _image(unit, arch)
    return _member(f"{unit}/{arch}.xz")


def choose(unit: str, capability: tuple[int, int]) -> str:
    """The image of ``unit`` that a GPU runs.

    Machine code runs on its own generation from its own version on (sm_70 on 7.0 and 7.2), PTX on any
    later one.  Source: CUDA C++ Programming Guide, "Binary Compatibility", "PTX Compatibility".

    Raises:
        LaunchError: none does.
    """
    versions = {arch: divmod(int(arch.rpartition("_")[2]), 10) for arch in architectures(unit)}
    fitting = {arch: version for arch, version in versions.items() if version <= capability}
    native = [arch for arch in fitting if arch.startswith("sm_") and fitting[arch][0] == capability[0]]
    candidates = native or [arch for arch in fitting if arch.startswith("compute_")]
    if not candidates:
        major, minor = capability
        raise LaunchError(
            f"unit {unit} has no image for compute capability {major}.{minor}, only "
            f"{', '.join(versions)}: the oldest supported GPUs are Volta (7.0)"
        )
    return max(candidates, key=lambda arch: fitting[arch])


def problem(capability: tuple[int, int]) -> str | None:
    """Why this package's kernels cannot run on a GPU of that capability; ``None`` where they can.

    Opens the driver, so it is for processes that use CUDA already.
    """
    try:
        for unit in units():
            choose(unit, capability)
        from titan_kernels import _driver

        _driver.version()
    except (TitanKernelsError, RuntimeError) as error:
        return str(error)
    return None


def _kernel_info(facts: dict[str, Any]) -> KernelInfo:
    sass = facts["sass"]
    loops = tuple(Loop(**loop) for loop in sass["loops"])
    flat = {key: value for key, value in facts.items() if key != "sass"}
    return KernelInfo(**_tuples(flat), instructions=sass["instructions"], pipes=sass["pipes"], loops=loops)


def _tuples(facts: dict[str, Any]) -> dict[str, Any]:
    return {**facts, "parameters": tuple(facts["parameters"])}


def _unit(unit: str) -> dict[str, Any]:
    try:
        return dict(_index()[unit])
    except KeyError:
        raise TitanKernelsError(
            f"unit ({unit}) has no kernels; those with some: {', '.join(units())}"
        ) from None


def _image(unit: str, arch: str) -> dict[str, Any]:
    try:
        return dict(_unit(unit)[arch])
    except KeyError:
        built = ", ".join(architectures(unit))
        raise TitanKernelsError(f"arch ({arch}) of unit {unit} was not built, only {built}") from None


@lru_cache(maxsize=1)
def _index() -> dict[str, Any]:
    try:
        return dict(json.loads(_member("images.json.xz")))
    except ValueError as error:
        raise _damaged(error) from error


def _member(name: str) -> bytes:
    try:
        from titan_kernels import _driver
    except ImportError as error:
        raise TitanKernelsError(
            f"this copy of titan_kernels is not built ({error}): pip install packages/titan-kernels"
        ) from error
    try:
        with zipfile.ZipFile(io.BytesIO(_driver.archive())) as archive:
            return lzma.decompress(archive.read(name))
    except (zipfile.BadZipFile, lzma.LZMAError, KeyError) as error:
        raise _damaged(error) from error


def _damaged(error: Exception) -> TitanKernelsError:
    return TitanKernelsError(
        f"the kernels in this copy of titan_kernels are damaged ({error}): install it again, "
        "pip install --force-reinstall packages/titan-kernels"
    )
