"""The machine and the software of a run, for environment.json and the report."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from titan_pretrain.atomic import write_file

if TYPE_CHECKING:
    import torch


__all__ = ["FILE_NAME", "environment_facts", "save_environment"]

FILE_NAME = "environment.json"
_DISTRIBUTION = "torch-titan-pretrain"
_GIB = 2**30


def environment_facts(device: torch.device, *, world_size: int, precision: str) -> dict[str, str]:
    """Facts by the name to show them under, in the order to show them in.

    Args:
        device: What this rank computes on.
        world_size: Number of processes.
        precision: Name of the compute precision, such as ``fp16``.
    """
    import torch  # the report needs this module, but no torch

    from titan_alloc.memory import memory_stats

    return {
        "started": f"{datetime.now().astimezone():%Y-%m-%d %H:%M:%S %z}",
        "command": " ".join(sys.argv),
        "processes": str(world_size),
        "precision": precision,
        **_device(device),
        "CPU": f"{_cpu_name()}, {os.cpu_count()} logical cores",
        "threads": str(torch.get_num_threads()),
        "RAM": f"{memory_stats(torch.device('cpu')).total / _GIB:.1f} GiB",
        "OS": platform.platform(),
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "torch": f"{torch.__version__} (CUDA {torch.version.cuda or 'none'})",
        **dict(_package_versions()),
    }


def save_environment(run_dir: Path, facts: dict[str, str]) -> None:
    """Write ``facts`` to the run folder; a resumed run describes the machine it last ran on."""
    write_file(run_dir / FILE_NAME, json.dumps(facts, indent=2) + "\n")


def _device(device: torch.device) -> dict[str, str]:
    if device.type != "cuda":
        return {"device": device.type}
    import torch

    properties = torch.cuda.get_device_properties(device)
    return {
        "device": properties.name,
        "compute capability": f"{properties.major}.{properties.minor}",
        "device memory": f"{properties.total_memory / _GIB:.1f} GiB",
        "GPUs of this machine": str(torch.cuda.device_count()),
    }


def _cpu_name() -> str:
    """The processor's marketing name, which only Linux tells without a subprocess."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _package_versions() -> Iterator[tuple[str, str]]:
    """Versions of this package and of what it declares, torch aside."""
    try:
        declared = importlib.metadata.requires(_DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:  # run from a source tree
        declared = []
    names = {match[0] for line in declared if (match := re.match(r"[\w.-]+", line))}
    for name in sorted({_DISTRIBUTION, *names} - {"torch"}):
        with suppress(importlib.metadata.PackageNotFoundError):  # not needed on this Python
            yield name, importlib.metadata.version(name)
