"""Reads machine code of Volta and Turing far enough to count instructions, also inside loops.

An instruction has 128 bits: the opcode in bits 0 to 8, the width of a memory access in bits 73 to 75,
a branch's distance in bits 34 to 81, counted in 4 bytes from the next instruction.  The tests compare
every instruction of every kernel with nvdisasm.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernel_build.sass_opcodes import OPCODES

__all__ = ["Instruction", "decode", "describe", "loops"]

_BYTES = 16
_BRANCH = 0x147
_WIDTHS = {0: ".U8", 1: ".S8", 2: ".U16", 3: ".S16", 4: "", 5: ".64", 6: ".128"}
_WITH_WIDTH = {"LDG", "STG", "LDS", "STS", "LDL", "STL", "LD", "ST", "LDC"}
_DISTANCE_BITS = 48


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes:
        address: Bytes from the kernel's begin.
        name: Mnemonic, with the width of a memory access that is not 32 bits: ``FFMA``, ``LDG.128``.
            An unknown opcode is its number, such as ``0x1ff``.
        pipe: The unit that executes it, see :data:`kernel_build.sass_opcodes.PIPES`.
        target: Where a direct branch goes, in bytes from the kernel's begin.
    """

    address: int
    name: str
    pipe: str
    target: int | None = None


def decode(code: bytes) -> list[Instruction]:
    """All instructions of a text section, padding included."""
    return [_decode(code, address) for address in range(0, len(code), _BYTES)]


def _decode(code: bytes, address: int) -> Instruction:
    word = int.from_bytes(code[address : address + _BYTES], "little")
    opcode = word & 0x1FF
    name, pipe = OPCODES.get(opcode, (f"{opcode:#05x}", "other"))
    if name in _WITH_WIDTH:
        name += _WIDTHS.get(word >> 73 & 7, "")
    return Instruction(address, name, pipe, _target(word, address) if opcode == _BRANCH else None)


def _target(word: int, address: int) -> int:
    distance = word >> 34 & (1 << _DISTANCE_BITS) - 1
    if distance >> _DISTANCE_BITS - 1:
        distance -= 1 << _DISTANCE_BITS
    return address + _BYTES + 4 * distance


def loops(instructions: Sequence[Instruction]) -> list[tuple[int, int]]:
    """First and last address of each loop: a backward branch and what it repeats.

    Branches to one target are one loop, up to the last of them.  The branch to itself that ends the
    code is none.
    """
    last: dict[int, int] = {}
    for each in instructions:
        if each.target is not None and each.target < each.address:
            last[each.target] = max(each.address, last.get(each.target, 0))
    return sorted(last.items())


def describe(code: bytes) -> dict[str, Any]:
    """Counts for ``images.json``: by name and by pipe, of the whole kernel and by pipe per loop."""
    instructions = _without_padding(decode(code))
    return {
        "instructions": dict(sorted(Counter(each.name for each in instructions).items())),
        "pipes": _by_pipe(instructions),
        "loops": [
            {
                "begin": begin,
                "end": end,
                "pipes": _by_pipe([each for each in instructions if begin <= each.address <= end]),
            }
            for begin, end in loops(instructions)
        ],
    }


def _by_pipe(instructions: Sequence[Instruction]) -> dict[str, int]:
    return dict(sorted(Counter(each.pipe for each in instructions).items()))


def _without_padding(instructions: Sequence[Instruction]) -> list[Instruction]:
    """Up to the branch to itself behind the last exit; NOPs follow it."""
    kept = list(instructions)
    while kept and kept[-1].name == "NOP":
        kept.pop()
    if kept and kept[-1].target == kept[-1].address:
        kept.pop()
    return kept
