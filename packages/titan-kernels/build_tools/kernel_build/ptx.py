"""What the build reads from PTX, and the version it ships it under.

Source: PTX ISA 8.8, "Kernel and Function Directives" and ".version".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["Signature", "for_older_drivers", "signatures"]

# The oldest version that knows all we use of sm_75 (mma.m16n8k8 came with 6.5); drivers from 450 on read it.
_VERSION = "7.0"

_ENTRY = re.compile(r"^\.visible \.entry (\w+)\((.*?)^\)\n(.*?)^\{", re.MULTILINE | re.DOTALL)
_PARAMETER = re.compile(r"\.param (?:\.align \d+ )?\.(\w+) \w+?(?:\[(\d+)\])?,?\n")
_MAX_THREADS = re.compile(r"\.maxntid (\d+)(?:, (\d+), (\d+))?")
_KINDS = {"u32": "i32", "s32": "i32", "b32": "i32", "u64": "i64", "s64": "i64", "b64": "i64", "f32": "f32"}


@dataclass(frozen=True)
class Signature:
    """How a kernel is called.

    Attributes:
        parameters: Per parameter ``i32``, ``i64``, ``f32``, or ``bytes:N`` for a struct: ``Global<T>``
            is ``bytes:8``, ``Array<T, N>`` is ``bytes:(N * sizeof(T))``.
        max_threads: Largest block, from ``__launch_bounds__``.
    """

    parameters: tuple[str, ...]
    max_threads: int


def signatures(ptx: str) -> dict[str, Signature]:
    """The kernels of a PTX text by name.

    Raises:
        ValueError: a kernel takes a kind of parameter that cannot be passed from Python, or has no
            launch bound.
    """
    return {name: _signature(name, parameters, rest) for name, parameters, rest in _ENTRY.findall(ptx)}


def _signature(name: str, parameters: str, directives: str) -> Signature:
    bound = _MAX_THREADS.search(directives)
    if bound is None:
        raise ValueError(f"kernel {name} has no launch bound: declare it with TITAN_KERNEL")
    threads = 1
    for size in bound.groups(default="1"):
        threads *= int(size)
    return Signature(tuple(_kind(name, *each) for each in _PARAMETER.findall(parameters)), threads)


def _kind(name: str, ptx_type: str, size: str) -> str:
    if size:
        return f"bytes:{size}"
    if ptx_type not in _KINDS:
        raise ValueError(
            f"kernel {name} has a .{ptx_type} parameter: use int, i64, float, Global<T> or Array<T, N>"
        )
    return _KINDS[ptx_type]


def for_older_drivers(ptx: str) -> str:
    """The text under the oldest version that it is valid in, so that older drivers compile it too."""
    changed, count = re.subn(
        r"^\.version \d+\.\d+$", f".version {_VERSION}", ptx, count=1, flags=re.MULTILINE
    )
    if count != 1:
        raise ValueError("PTX text without a .version directive")
    return changed
