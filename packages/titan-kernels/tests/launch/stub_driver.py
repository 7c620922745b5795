"""Puts a stub CUDA driver and a small archive of kernels under :mod:`titan_kernels.launch`."""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import io
import json
import lzma
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import titan_kernels
from titan_kernels import images, launch

PARAMETERS = {
    "scalars": ["bytes:8", "bytes:8", "i32", "i64", "f32", "i32"],
    "array": ["bytes:8", "bytes:32", "bytes:12"],
    "turing_only": ["bytes:8"],
    "big": ["bytes:8"] * 7 + ["i32"] * 3,
}
SIZES = {"i32": 4, "i64": 8, "f32": 4}


class OnGpu(torch.Tensor):
    """A tensor in host memory that claims to be on a GPU."""

    __torch_function__ = torch._C._disabled_torch_function_impl
    ordinal = 0
    is_cuda = property(lambda self: True)
    device = property(lambda self: torch.device("cuda", self.ordinal))

    def get_device(self) -> int:
        return self.ordinal


def on_gpu(*shape: int, ordinal: int = 0, dtype: torch.dtype = torch.float32) -> OnGpu:
    tensor = torch.zeros(shape, dtype=dtype).as_subclass(OnGpu)
    tensor.ordinal = ordinal
    return tensor


def build(folder: Path, *flags: str) -> Path:
    """Compile the stub; every copy of the file has a state of its own."""
    library = folder / "libcuda_stub.so"
    source = Path(__file__).with_suffix(".cpp")
    command = ["c++", "-std=c++17", "-O2", "-shared", "-fPIC", *flags, "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    return library


def archive() -> bytes:
    """An archive as the build makes it; the images are their own names."""
    index: dict[str, Any] = {"probe": {}}
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as file:
        for arch in ("sm_70", "sm_75", "compute_75"):
            names = [name for name in PARAMETERS if arch != "sm_70" or name != "turing_only"]
            facts = {"max_threads": 256, "static_shared": 1024}
            kernels = {name: {"parameters": PARAMETERS[name], **facts} for name in names}
            index["probe"][arch] = {"size": len(arch), "sources": "", "kernels": kernels}
            file.writestr(f"probe/{arch}.xz", lzma.compress(arch.encode()))
        file.writestr("images.json.xz", lzma.compress(json.dumps(index).encode()))
    return packed.getvalue()


class Stub:
    """The loaded stub: what it was asked, and what it should refuse."""

    def __init__(self, library: Path, driver: ModuleType) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.stub_text.restype = ctypes.c_char_p
        self.driver = driver

    def calls(self) -> list[str]:
        """The calls since the last question, each with its arguments."""
        lines = self._library.stub_text().decode().splitlines()
        self._library.stub_clear()
        return lines

    def fail(self, call: str, code: int) -> None:
        self._library.stub_fail(call.encode(), code)

    def record(self, on: bool) -> None:
        self._library.stub_record(int(on))

    def delay_loading(self, milliseconds: int) -> None:
        self._library.stub_delay(milliseconds)

    def make_current(self, device: int) -> None:
        """What PyTorch has done long before a launch."""
        self._library.cuCtxPushCurrent_v2(ctypes.c_void_p(0x1000 + device))

    def launch(self, kernel: str, grid: Any, block: Any, args: Sequence[Any], shared: int = 0) -> list[str]:
        """Launch a kernel of the archive, and return the calls that this made."""
        sizes = [SIZES.get(kind) or int(kind[6:]) for kind in PARAMETERS[kernel]]
        self._library.stub_parameters((ctypes.c_int * len(sizes))(*sizes), len(sizes))
        self.calls()
        launch.launch("probe", kernel, grid, block, args, shared)
        return self.calls()


def fresh_driver(folder: Path, patch: pytest.MonkeyPatch) -> ModuleType:
    """A second copy of the extension, which has opened no driver yet, in place of the first."""
    from titan_kernels import _driver

    copy = shutil.copy(str(_driver.__file__), folder)
    name = f"{folder.name}._driver"  # pybind11 returns the first copy for the same name
    loader = importlib.machinery.ExtensionFileLoader(name, copy)
    spec = importlib.util.spec_from_file_location(name, copy, loader=loader)
    assert spec is not None
    driver = importlib.util.module_from_spec(spec)
    loader.exec_module(driver)
    patch.setitem(sys.modules, "titan_kernels._driver", driver)
    patch.setattr(titan_kernels, "_driver", driver)
    patch.delitem(sys.modules, "titan_kernels._cuda", raising=False)
    patch.delattr(titan_kernels, "_cuda", raising=False)
    return driver


def install(library: Path, folder: Path, patch: pytest.MonkeyPatch, capabilities: str) -> Stub:
    """Let launches go to a copy of the stub, with these devices."""
    copied = Path(shutil.copy(library, folder))
    patch.setenv("TITAN_CUDA_DRIVER", str(copied))
    patch.setenv("STUB_CAPABILITIES", capabilities)
    patch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 7000 + device, raising=False)
    driver = fresh_driver(folder, patch)
    packed = archive()
    patch.setattr(driver, "archive", lambda: memoryview(packed))
    return Stub(copied, driver)


def forget_caches() -> None:
    """What was read from another archive or through another driver does not count any more."""
    images._index.cache_clear()
    launch._cuda_launch.cache_clear()


def fields(call: str) -> dict[str, str]:
    """The details of a recorded launch."""
    return dict(word.split("=") for word in call.split()[1:])


def names(calls: list[str]) -> list[str]:
    """The calls without their arguments."""
    return [call.split()[0] for call in calls]
