"""Compiles kernel units against the emulator with the machine's C++ compiler.

The result is kept in a cache under a hash of everything it depends on: sources, headers, flags and the
compiler's version.  Processes may compile the same unit at the same time; each writes a file of its own
and moves it into place.  Whoever adds a result deletes those that nobody has used for 60 days, as the build
of the kernels does with its own.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from titan_kernels.errors import CompileError

__all__ = ["compile_unit", "include_directories", "included_files", "unit_source"]

_PACKAGE = Path(__file__).resolve().parent.parent
_COMPILERS = ("g++", "c++", "clang++")
# Results must not depend on the machine: no contraction of a * b + c.
_FLAGS = (
    *("-std=c++20", "-O2", "-DTITAN_EMULATED", "-fPIC", "-fvisibility=hidden"),
    *("-ffp-contract=off", "-fno-math-errno"),
)
_KEEP_SECONDS = 60 * 24 * 3600
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"]+)[>"]', re.MULTILINE)
# Conversions of halves and fused multiply-adds in hardware.
_FAST_X86 = {"avx2", "bmi2", "f16c", "fma", "movbe"}


def include_directories() -> tuple[Path, Path]:
    """Where the device headers and the emulator's headers are: in the wheel, or in the source tree."""
    installed = _PACKAGE / "_emulator_include"
    source = _PACKAGE.parent.parent / "emulator" / "include"
    return _PACKAGE / "include", installed if installed.is_dir() else source


def unit_source(unit: str | Path) -> Path:
    """The source of a unit: a path to any ``.cu`` file, or an op's name for its ``kernel.cu``.

    Raises:
        CompileError: there is no such file.
    """
    path = Path(unit) if str(unit).endswith(".cu") else _PACKAGE / "ops" / unit / "kernel.cu"
    if not path.is_file():
        raise CompileError(f"unit {unit}: there is no file {path}")
    return path.resolve()


def compile_unit(source: Path, extra_flags: tuple[str, ...] = ("-w",), *, anew: bool = False) -> Path:
    """The shared library of a unit, from the cache or compiled now.

    Args:
        source: The ``.cu`` file.
        extra_flags: More compiler flags, such as definitions, in place of the one that silences warnings.
        anew: Compile it in any case, where what the cache holds is damaged.

    Raises:
        CompileError: there is no C++ compiler, or it refuses the source; holds the compiler's words.
    """
    compiler = _compiler()
    command = (*compiler, *_FLAGS, *_machine_flags(), *_gcc_flags(compiler), *extra_flags)
    runtime = _runtime(command, _version(compiler), anew)
    key = _hash(included_files(source, include_directories()), (*command, _version(compiler), runtime.name))
    library = cache_directory() / f"{source.parent.name}-{source.stem}-{key}.so"
    if anew or not _kept(library):
        _build((*command, "-shared", "-x", "c++", str(source), "-x", "none", str(runtime)), source, library)
    return library


def _runtime(command: tuple[str, ...], version: str, anew: bool) -> Path:
    """The object file of what all units share."""
    source = include_directories()[1] / "titan_emulator" / "runtime" / "runtime.cpp"
    key = _hash(included_files(source, include_directories()), (*command, version))
    result = cache_directory() / f"runtime-{key}.o"
    if anew or not _kept(result):
        _build((*command, "-c", str(source)), source, result)
    return result


def _kept(result: Path) -> bool:
    """Whether the cache holds a result; if so, it is noted as used."""
    try:
        os.utime(result)
    except FileNotFoundError:
        return False
    except OSError:  # a cache that is not ours to write
        return result.exists()
    return True


def cache_directory() -> Path:
    """Where compiled units are kept: ``$TITAN_CACHE``, else ``titan`` in the user's cache directory."""
    if chosen := os.environ.get("TITAN_CACHE"):
        return Path(chosen) / "emulator"
    try:
        user_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError as error:  # a user without an entry in the system's list
        raise CompileError(f"no cache for kernels ({error}): name a folder in TITAN_CACHE") from error
    return user_cache / "titan" / "emulator"


def included_files(source: Path, folders: tuple[Path, ...]) -> list[Path]:
    """``source`` and all that it includes, under any condition, from its own folder and ``folders``."""
    found = [source]
    for path in found:
        for name in _INCLUDE.findall(path.read_text(encoding="utf-8", errors="replace")):
            candidates = ((folder / name).resolve() for folder in (path.parent, *folders))
            hit = next((each for each in candidates if each.is_file()), None)
            if hit is not None and hit not in found:
                found.append(hit)
    return found


def _hash(files: Iterable[Path], words: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for part in (*(path.read_bytes() for path in files), *(word.encode() for word in words)):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()[:24]


def _build(command: tuple[str, ...], source: Path, result: Path) -> None:
    includes = [f"-I{folder}" for folder in include_directories()]
    try:
        result.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=result.parent, prefix=".building-") as folder:
            output = Path(folder) / result.name
            arguments = [*command, *includes, "-o", str(output)]
            done = subprocess.run(arguments, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise CompileError(f"{source} does not compile ({command[0]}):\n{done.stderr.strip()}")
            output.replace(result)
        _prune(result.parent)
    except OSError as error:
        raise CompileError(
            f"cannot write the cache of compiled kernels: {error}; name another folder in TITAN_CACHE"
        ) from error


def _prune(folder: Path) -> None:
    """Delete results that nobody has used for 60 days, and what a crash left of building them."""
    oldest = time.time() - _KEEP_SECONDS
    for path in [*folder.glob("*.so"), *folder.glob("*.o"), *folder.glob(".building-*")]:
        # Another process may be faster.
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_mtime < oldest:
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _compiler() -> tuple[str, ...]:
    """The compiler and, as in ``CXX="ccache g++"``, what comes with it."""
    chosen = os.environ.get("CXX")
    for name in (chosen,) if chosen else _COMPILERS:
        first, *others = _words(name)
        if (path := shutil.which(first)) is not None:
            return (path, *others)
    raise CompileError(
        f"the emulator needs a C++ compiler, but {chosen or ', '.join(_COMPILERS)} is not on the PATH: "
        "install g++ 12 or later, or name one in CXX"
    )


def _words(compiler: str) -> list[str]:
    try:
        return shlex.split(compiler) or [compiler]
    except ValueError as error:
        raise CompileError(f"CXX ({compiler}): {error}; it must be a command as a shell reads it") from error


@functools.cache
def _version(compiler: tuple[str, ...]) -> str:
    return subprocess.run([*compiler, "--version"], capture_output=True, text=True, check=False).stdout


def _gcc_flags(compiler: tuple[str, ...]) -> tuple[str, ...]:
    # Inline variables would otherwise be one object in all units of the process.
    return () if "clang" in _version(compiler) else ("-fno-gnu-unique",)


@functools.cache
def _machine_flags() -> tuple[str, ...]:
    if platform.machine() not in ("x86_64", "AMD64"):
        return ()
    try:
        cpu = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return ()
    flags = next((line.split() for line in cpu.splitlines() if line.startswith("flags")), [])
    return ("-march=x86-64-v3",) if _FAST_X86.issubset(flags) else ()
