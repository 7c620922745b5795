"""Results as JSON, with the machine they were measured on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from titan_bench.errors import BenchError
from titan_pretrain.atomic import write_file

__all__ = ["write_json"]

FORMAT_VERSION = 1


def write_json(path: Path, benchmark: str, machine: Mapping[str, str], values: Mapping[str, Any]) -> None:
    """Write one benchmark's result.

    Args:
        path: file to write; its folder is made.
        benchmark: name of the benchmark.
        machine: facts of the machine, such as the device's name and the versions.
        values: the measured values; JSON-able.

    Raises:
        BenchError: the file can't be written.
    """
    document = {"format": FORMAT_VERSION, "benchmark": benchmark, "machine": dict(machine), **values}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps(document, indent=2) + "\n")
    except OSError as error:
        raise BenchError(f"--json ({path}) can't be written: {error.strerror or error}") from None
