"""Compiles the Triton kernels of all operators to machine code, without a GPU; prints what fails as JSON.

    python compile_triton.py 75 [number of small cases per operator]

The interpreter, which the other tests use, knows neither types nor the compiler's specialisation: an integer
argument that is 1 becomes a constant.  Triton runs here as it does on a GPU, up to the launch.
"""

from __future__ import annotations

import importlib
import json
import sys
from types import SimpleNamespace
from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from titan_kernels.registry import Op, ops
from titan_kernels.testing import DTYPES, arguments, clone


class Driver:
    """A GPU of one architecture, as far as the compiler asks."""

    def __init__(self, capability: int) -> None:
        self.target = GPUTarget("cuda", capability, 32)
        self.utils = SimpleNamespace(get_device_properties=lambda device: {"max_shared_mem": 64 * 1024})

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def failures(op: Op, most: int) -> list[str]:
    """Of an operator's kernels in its small cases: the first in all dtypes, the others in the hardest one.

    That is bf16, for which neither architecture has instructions.  The other cases differ in options and in
    the arguments that become constants, which go by the same lines in every dtype.
    """
    triton_ones = [each for each in op.implementations if each.name == "triton"]
    found = []
    for number, case in enumerate([case for case in op.cases() if not case.realistic][:most]):
        hardest = [each for each in case.dtypes if each == torch.bfloat16] or case.dtypes[:1]
        for dtype in (hardest if number else case.dtypes) if triton_ones else ():
            if case.label in op.declined.get("triton", ()):
                continue
            try:
                triton_ones[0].run(*clone(arguments(case, dtype)))
            except Exception as error:
                found.append(f"{op.name} {DTYPES[dtype]} {case.label}: {type(error).__name__}: {error}")
    return found


def main() -> None:
    """See the module's docstring."""
    capability, most = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else sys.maxsize
    triton.runtime.driver.set_active(Driver(capability))
    compiled: set[str] = set()
    launch = JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        kernel = launch(self, *args, grid=grid, warmup=True, **kwargs)
        assert kernel.asm["cubin"]
        compiled.add(kernel.hash)
        return kernel

    JITFunction.run = compile_only
    importlib.import_module("titan_kernels.ops")
    found = [text for op in ops().values() for text in failures(op, most)]
    sys.stdout.write(json.dumps({"compiled": len(compiled), "failures": found}) + "\n")


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
