"""The code of the kernels in a cubin, which is an ELF file.

Source: System V ABI, "Object Files" (64-bit, little-endian); section names as ptxas writes them.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

__all__ = ["text_sections"]

_ELF = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_TEXT = ".text."


@dataclass(frozen=True)
class _Section:
    name_offset: int
    offset: int
    size: int


def text_sections(cubin: bytes) -> dict[str, bytes]:
    """Machine code by kernel.

    Raises:
        ValueError: ``cubin`` is not a 64-bit ELF file.
    """
    sections, names = _sections(cubin)
    found = {}
    for section in sections:
        end = names.index(b"\0", section.name_offset)
        name = names[section.name_offset : end].decode()
        if name.startswith(_TEXT):
            found[name.removeprefix(_TEXT)] = cubin[section.offset : section.offset + section.size]
    return found


def _sections(cubin: bytes) -> tuple[list[_Section], bytes]:
    """The section table and the text of its names."""
    if cubin[:5] != b"\x7fELF\x02":
        raise ValueError("not a cubin: no 64-bit ELF header")
    header = _ELF.unpack_from(cubin)
    table, size, count, names_index = header[6], header[11], header[12], header[13]
    sections = []
    for index in range(count):
        fields = _SECTION.unpack_from(cubin, table + index * size)
        sections.append(_Section(name_offset=fields[0], offset=fields[4], size=fields[5]))
    names = sections[names_index]
    return sections, cubin[names.offset : names.offset + names.size]
