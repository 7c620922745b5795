"""Which PyTorch build this machine needs; only the standard library is used.

PyTorch's wheels are built per CUDA version, and each CUDA version knows certain cards only:

* Volta (7.0, 7.2): CUDA 12.6 builds of PyTorch 2.11 to 2.14; every other build lacks its kernels
* Turing to Hopper (7.5 to 9.0): CUDA 12.6, or CUDA 13 where the driver is 580 or newer
* Blackwell (10.0 and later): CUDA 13
* no NVIDIA GPU: the CPU build

Source: the release matrix in PyTorch's RELEASE.md, and NVIDIA's CUDA compatibility guide for drivers.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Facts", "Gpu", "Torch", "TorchChoiceError", "check_installed", "gather", "pip_arguments"]

VERSION = "2.13.0"
"""The release that the set-up installs; constraints.txt pins the same one."""
SUPPORTED = ((2, 11), (2, 15))
"""Oldest and newest release that the packages accept."""
LAST_FOR_VOLTA = (2, 14)

_WHEELS = "https://download.pytorch.org/whl"
_CPU, _CU126, _DEFAULT, _KEEP = "cpu", "cu126", "default", "keep"
_VOLTA, _TURING, _BLACKWELL = (7, 0), (7, 5), (10, 0)
_DRIVER_FOR_CUDA_12, _DRIVER_FOR_CUDA_13 = 525, 580


class TorchChoiceError(Exception):
    """This machine or its torch can't be used as it is; the message says what to do."""


@dataclass(frozen=True)
class Gpu:
    """One line of nvidia-smi."""

    name: str
    capability: tuple[int, int]


@dataclass(frozen=True)
class Torch:
    """An installed torch; ``cuda`` is ``None`` for a CPU build, else such as ``"12.6"``."""

    version: str
    cuda: str | None

    @property
    def release(self) -> tuple[int, int]:
        """Major and minor version."""
        major, minor = re.findall(r"\d+", self.version)[:2]
        return int(major), int(minor)


@dataclass(frozen=True)
class Facts:
    """All that the choice depends on."""

    gpus: tuple[Gpu, ...] = ()
    driver: int | None = None
    installed: Torch | None = None
    wheels_reachable: bool = False
    override: str | None = None
    """Value of ``TITAN_TORCH``: ``cpu``, ``cu126``, ``default``, or ``keep`` (don't check)."""


def needed_build(facts: Facts) -> str:
    """The build this machine needs: ``cpu``, ``cu126`` or ``default`` (PyPI's, CUDA 13).

    Raises:
        TorchChoiceError: no build serves the GPUs with this driver, or ``TITAN_TORCH`` has an unknown value.
    """
    if facts.override not in (None, _CPU, _CU126, _DEFAULT, _KEEP):
        raise TorchChoiceError(f"TITAN_TORCH ({facts.override}) is unknown: use cpu, cu126, default or keep")
    if facts.override in (_CPU, _CU126, _DEFAULT):
        return str(facts.override)
    if facts.driver is not None and facts.driver < _DRIVER_FOR_CUDA_12:
        raise TorchChoiceError(
            f"NVIDIA driver ({facts.driver}) is too old for CUDA 12.6: install {_DRIVER_FOR_CUDA_12} or "
            "newer (580 is the last one for Volta), or train on the CPU with TITAN_TORCH=cpu"
        )
    if not facts.gpus:
        return _CPU
    usable = [gpu for gpu in facts.gpus if gpu.capability >= _VOLTA]
    if not usable:
        oldest = min(facts.gpus, key=lambda gpu: gpu.capability)
        raise TorchChoiceError(
            f"GPU ({_describe(oldest)}) is older than Volta (7.0), the oldest this project supports: "
            "train on the CPU with TITAN_TORCH=cpu, or use another GPU"
        )
    return _build_for(usable, facts.driver)


def _build_for(usable: list[Gpu], driver: int | None) -> str:
    oldest = min(usable, key=lambda gpu: gpu.capability)
    newest = max(usable, key=lambda gpu: gpu.capability)
    if oldest.capability >= _TURING and driver is not None and driver >= _DRIVER_FOR_CUDA_13:
        return _DEFAULT
    if newest.capability < _BLACKWELL:
        return _CU126
    if oldest.capability < _TURING:
        raise TorchChoiceError(
            f"GPUs ({_describe(oldest)} and {_describe(newest)}) have no PyTorch build in common: choose "
            "TITAN_TORCH=cu126 for the first or TITAN_TORCH=default for the second, and set "
            "CUDA_VISIBLE_DEVICES to match"
        )
    raise TorchChoiceError(
        f"GPU ({_describe(newest)}) needs CUDA 13, whose driver is {_DRIVER_FOR_CUDA_13} or newer: "
        f"this one is {driver}; update it, or train on the CPU with TITAN_TORCH=cpu"
    )


def pip_arguments(build: str, *, wheels_reachable: bool) -> list[str]:
    """What ``pip install`` must be given to install ``build``."""
    if build == _CU126:
        return [f"torch=={VERSION}+cu126", "--index-url", f"{_WHEELS}/cu126"]
    if build == _CPU and wheels_reachable:
        # pip prefers 2.13.0+cpu from the extra index to PyPI's 2.13.0, which carries CUDA.
        return [f"torch=={VERSION}", "--extra-index-url", f"{_WHEELS}/cpu"]
    return [f"torch=={VERSION}"]


def check_installed(facts: Facts, python: str) -> None:
    """Verify that the installed torch serves this machine; it is never replaced without asking.

    Args:
        facts: The machine; ``facts.installed`` must be present.
        python: The interpreter to name in the command that mends it.

    Raises:
        TorchChoiceError: it does not; the message names the command that mends it.
    """
    if facts.installed is None:
        raise ValueError("facts.installed is None: check_installed needs an installed torch")
    if facts.override == _KEEP:
        return
    build = needed_build(facts)
    wrong = _what_is_wrong(facts.installed, build, facts)
    if wrong:
        command = " ".join(pip_arguments(build, wheels_reachable=facts.wheels_reachable or build == _CPU))
        raise TorchChoiceError(
            f"installed torch ({facts.installed.version}) {wrong}; it is left as it is\n"
            f"  to replace it:  '{python}' -m pip install --force-reinstall {command}\n"
            "  to use it all the same:  set TITAN_TORCH=keep"
        )


def _what_is_wrong(torch: Torch, build: str, facts: Facts) -> str | None:
    if not SUPPORTED[0] <= torch.release <= SUPPORTED[1]:
        return f"is outside {SUPPORTED[0][0]}.{SUPPORTED[0][1]} to {SUPPORTED[1][0]}.{SUPPORTED[1][1]}"
    if build == _CPU:
        return None  # a CUDA build runs on the CPU just as well
    cards = ", ".join(sorted({_describe(gpu) for gpu in facts.gpus})) or "TITAN_TORCH's choice"
    if torch.cuda is None:
        return f"is a CPU build and can't use {cards}"
    volta = any(_VOLTA <= gpu.capability < _TURING for gpu in facts.gpus)
    if volta and (torch.release > LAST_FOR_VOLTA or torch.cuda != "12.6"):
        return f"(CUDA {torch.cuda}) has no kernels for {cards}: Volta needs 2.11 to 2.14 built for CUDA 12.6"
    cuda_major = int(torch.cuda.split(".")[0])
    if cuda_major >= 13 and facts.driver is not None and facts.driver < _DRIVER_FOR_CUDA_13:
        return f"(CUDA {torch.cuda}) needs driver {_DRIVER_FOR_CUDA_13} or newer, this one is {facts.driver}"
    if cuda_major < 13 and build == _DEFAULT and any(gpu.capability >= _BLACKWELL for gpu in facts.gpus):
        return f"(CUDA {torch.cuda}) has no kernels for {cards}"
    return None


def _describe(gpu: Gpu) -> str:
    return f"{gpu.name}, compute capability {gpu.capability[0]}.{gpu.capability[1]}"


def gather() -> Facts:
    """Look at this machine and at the torch of the interpreter that runs this."""
    gpus, driver = _nvidia_smi()
    installed = _installed_torch()
    # Only an installation needs to know, and finding out may cost an offline machine seconds.
    reachable = installed is None and _wheels_reachable()
    return Facts(gpus, driver, installed, reachable, os.environ.get("TITAN_TORCH") or None)


def _nvidia_smi() -> tuple[tuple[Gpu, ...], int | None]:
    if shutil.which("nvidia-smi") is None:
        return (), None
    answer = _query("driver_version,compute_cap,name")
    gpus, driver = parse_nvidia_smi(answer)
    if not gpus:  # drivers older than 510 don't know compute_cap, but they do know their version
        driver = parse_driver(_query("driver_version"))
    if driver is None:
        words = answer.strip().splitlines() or ["no answer"]
        print(f"warning: nvidia-smi finds no GPU ({words[0]}); going on without one", file=sys.stderr)
    return gpus, driver


def _query(fields: str) -> str:
    command = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)


def parse_nvidia_smi(text: str) -> tuple[tuple[Gpu, ...], int | None]:
    """GPUs and the driver's major version in the answer of nvidia-smi; nothing where it has none."""
    rows = re.findall(r"^\s*[\d.]+\s*,\s*(\d+)\.(\d+)\s*,\s*(.+?)\s*$", text, re.MULTILINE)
    return tuple(Gpu(name, (int(major), int(minor))) for major, minor, name in rows), parse_driver(text)


def parse_driver(text: str) -> int | None:
    """The driver's major version where the answer starts with one."""
    found = re.match(r"\s*(\d+)\.\d+", text)
    return int(found[1]) if found else None


def _installed_torch() -> Torch | None:
    """Version and CUDA version of the installed torch, without importing it (which takes seconds)."""
    try:
        importlib.metadata.version("torch")  # a bare folder may be what an interrupted pip left
    except importlib.metadata.PackageNotFoundError:
        return None
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        source = (Path(spec.origin).parent / "version.py").read_text()
    except OSError:
        return None
    version = re.search(r"^__version__ = ['\"](.+?)['\"]", source, re.MULTILINE)
    cuda = re.search(r"^cuda[^=]*= ['\"](.+?)['\"]", source, re.MULTILINE)
    return Torch(version[1], cuda[1] if cuda else None) if version else None


def _wheels_reachable(timeout_s: float = 3.0) -> bool:
    try:
        with urllib.request.urlopen(f"{_WHEELS}/cpu/torch/", timeout=timeout_s):
            return True
    except (OSError, ValueError):
        return False
