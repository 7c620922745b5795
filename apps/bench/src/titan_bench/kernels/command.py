"""What ``titan-bench kernels`` does with its options."""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

import titan_kernels
from titan_bench.errors import BenchError
from titan_bench.kernels.emulate import emulate as emulate_ops
from titan_bench.kernels.show import print_rows
from titan_bench.results import write_json
from titan_kernels.registry import Op, ops

__all__ = ["run_kernels"]

_DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}


def run_kernels(
    names: Sequence[str], emulate: bool, dtype: str, json_path: Path | None, tell: Callable[[str], None]
) -> None:
    """Run the benchmark and print its table.

    Raises:
        BenchError: An unknown operator, no GPU and no ``--emulate``, or a wrong result.
    """
    chosen = _chosen(names)
    if not emulate:
        raise BenchError("titan-bench kernels needs an NVIDIA GPU to time; --emulate does without")
    rows = emulate_ops(chosen, _DTYPES[dtype], tell)
    print_rows(rows)
    if json_path is not None:
        machine = {"device": "emulator", "python": platform.python_version(), "torch": torch.__version__}
        machine["titan_kernels"] = titan_kernels.__version__
        write_json(json_path, "kernels-emulated", machine, {"rows": [row.to_dict() for row in rows]})


def _chosen(names: Sequence[str]) -> list[Op]:
    known = {name: op for name, op in ops().items() if any(i.name == "cuda" for i in op.implementations)}
    unknown = [each for each in names if not any(name.startswith(each) for name in known)]
    if unknown:
        raise BenchError(
            f"OP ({', '.join(unknown)}): no operator starts so; there are {', '.join(sorted(known))}"
        )
    return [op for name, op in sorted(known.items()) if not names or name.startswith(tuple(names))]
