"""What one kernel needs of an SM, from the log of ``ptxas -v``.

Source: CUDA Compiler Driver documentation, "Printing Code Generation Statistics".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Resources", "parse_log"]

_KERNEL = re.compile(
    r"Compiling entry function '(?P<name>\w+)' for '\w+'.*?"
    r"(?P<stack>\d+) bytes stack frame, "
    r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)
_SHARED = re.compile(r"(\d+)(?:\+\d+)? bytes smem")
_CONSTANT = re.compile(r"(\d+) bytes cmem\[")


@dataclass(frozen=True)
class Resources:
    """Registers per thread; bytes per thread of stack and spills; bytes per block of the rest."""

    registers: int
    spill_stores: int
    spill_loads: int
    stack: int
    static_shared: int
    constant: int


def parse_log(log: str) -> dict[str, Resources]:
    """Resources by kernel, from the log of a compilation with ``--ptxas-options=-v``."""
    return {match["name"]: _resources(match) for match in _KERNEL.finditer(log)}


def _resources(match: re.Match[str]) -> Resources:
    shared = _SHARED.search(match["rest"])
    return Resources(
        registers=int(match["registers"]),
        spill_stores=int(match["stores"]),
        spill_loads=int(match["loads"]),
        stack=int(match["stack"]),
        static_shared=int(shared[1]) if shared else 0,
        constant=sum(int(size) for size in _CONSTANT.findall(match["rest"])),
    )
