"""NVIDIA's runtime compiler through ctypes: CUDA C++ in, an image (cubin or PTX) and a log out.

Source: the NVRTC 12.9 documentation.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import importlib.util
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

__all__ = [
    "REQUIREMENTS",
    "CompileError",
    "Compiled",
    "ToolchainError",
    "compile_source",
    "cuda_include",
    "versions",
]

REQUIREMENTS = ("nvidia-cuda-nvrtc-cu12", "nvidia-cuda-runtime-cu12")
"""The distributions that hold the compiler and the headers."""
_SUCCESS = 0


class ToolchainError(Exception):
    """NVRTC or the CUDA headers are not installed, or do not answer as they should."""


class CompileError(Exception):
    """A kernel does not compile; the message is NVRTC's log with file and line."""


@dataclass(frozen=True)
class Compiled:
    """What one compilation gave: ``image`` is a cubin for ``sm_*`` and PTX for ``compute_*``."""

    image: bytes
    ptx: str
    log: str


def versions() -> dict[str, str]:
    """Installed versions of :data:`REQUIREMENTS`; part of the key under which results are kept."""
    try:
        return {name: importlib.metadata.version(name) for name in REQUIREMENTS}
    except importlib.metadata.PackageNotFoundError as error:
        raise ToolchainError(f"{error.name} is not installed: pip install {error.name}") from None


def cuda_include() -> Path:
    """The folder of ``cuda.h`` and ``cuda_fp16.h``."""
    return _package("cuda_runtime") / "include"


def compile_source(source: Path, arch: str, includes: tuple[Path, ...], options: tuple[str, ...]) -> Compiled:
    """Compile one ``.cu`` file.

    Args:
        source: The file; messages name it.
        arch: ``sm_70`` and the like for a cubin, ``compute_75`` and the like for PTX.
        includes: Folders of headers; CUDA's own are added.
        options: Further NVRTC options.

    Raises:
        CompileError: with NVRTC's log.
        ToolchainError: NVRTC is missing.
    """
    folders = [f"-I{folder}" for folder in (*includes, cuda_include())]
    program = _Program(source)
    try:
        status = program.compile([f"--gpu-architecture={arch}", *options, *folders])
        log = program.text("ProgramLog")
        if status != _SUCCESS:
            raise CompileError(f"{source} for {arch}: {_error_string(status)}\n{log}")
        ptx = program.text("PTX")
        image = program.data("CUBIN") if arch.startswith("sm_") else ptx.encode()
        return Compiled(image, ptx, log)
    finally:
        program.close()


class _Program:
    """An ``nvrtcProgram``."""

    def __init__(self, source: Path) -> None:
        self._handle = ctypes.c_void_p()
        _check(
            _library().nvrtcCreateProgram(
                ctypes.byref(self._handle), source.read_bytes(), str(source).encode(), 0, None, None
            )
        )

    def compile(self, options: list[str]) -> int:
        encoded = [option.encode() for option in options]
        array = (ctypes.c_char_p * len(encoded))(*encoded)
        return int(_library().nvrtcCompileProgram(self._handle, len(encoded), array))

    def data(self, what: str) -> bytes:
        size = ctypes.c_size_t()
        _check(getattr(_library(), f"nvrtcGet{what}Size")(self._handle, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        _check(getattr(_library(), f"nvrtcGet{what}")(self._handle, buffer))
        return buffer.raw

    def text(self, what: str) -> str:
        return self.data(what).rstrip(b"\0").decode(errors="replace")

    def close(self) -> None:
        _library().nvrtcDestroyProgram(ctypes.byref(self._handle))


def _package(name: str) -> Path:
    try:
        spec = importlib.util.find_spec(f"nvidia.{name}")
    except ModuleNotFoundError:
        spec = None
    if spec is None or not spec.submodule_search_locations:
        raise ToolchainError(f"nvidia.{name} is not installed: pip install {' '.join(REQUIREMENTS)}")
    return Path(spec.submodule_search_locations[0])


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    path = _package("cuda_nvrtc") / "lib" / "libnvrtc.so.12"
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise ToolchainError(f"NVRTC does not load: {error}") from None
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library


def _error_string(status: int) -> str:
    return bytes(_library().nvrtcGetErrorString(status)).decode()


def _check(status: int) -> None:
    if status != _SUCCESS:
        raise ToolchainError(f"NVRTC: {_error_string(status)}")
