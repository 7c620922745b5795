"""The decoder of machine code, against made-up words and, where it is there, against nvdisasm.

nvdisasm must know Volta: CUDA 11.0 to 12.9 have one, and so has the wheel of triton 3.6.0::

    pip download triton==3.6.0 --no-deps && unzip -j triton-3.6.0-*.whl '*/nvdisasm'
    TITAN_NVDISASM=./nvdisasm pytest packages/titan-kernels/tests/compile/test_sass.py
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from kernel_build import sass, sass_opcodes
from kernel_build.cubin import text_sections

from titan_kernels import images

NVDISASM = os.environ.get("TITAN_NVDISASM")
_LINE = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+ +)?([A-Z][A-Z0-9_]*)(\S*)(.*);")
_WIDTH = re.compile(r"\.(U8|S8|U16|S16|64|128)\b")


def word(opcode: int, distance: int = 0, width: int = 0) -> bytes:
    """An instruction; ``distance`` in bytes from the next one."""
    return (opcode | (distance // 4 % 2**48) << 34 | width << 73).to_bytes(16, "little")


EXIT, BRANCH, FFMA, LDG, NOP = 0x94D, 0x947, 0x223, 0x381, 0x918


class TestDecode:
    def test_names_pipes_and_widths(self) -> None:
        code = word(FFMA) + word(LDG, width=6) + word(LDG, width=4) + word(EXIT)
        decoded = [(each.name, each.pipe) for each in sass.decode(code)]
        assert decoded == [("FFMA", "fma"), ("LDG.128", "global"), ("LDG", "global"), ("EXIT", "control")]

    def test_branches_both_ways(self) -> None:
        code = word(BRANCH, distance=32) + word(FFMA) + word(BRANCH, distance=-48)
        assert [each.target for each in sass.decode(code)] == [48, None, 0]

    def test_an_unknown_opcode_is_its_number(self) -> None:
        assert sass.decode(word(0x1FF))[0] == sass.Instruction(0, "0x1ff", "other")

    def test_every_opcode_has_one_meaning(self) -> None:
        listed = [word for text in sass_opcodes._NAMES.values() for word in text.split()[1::2]]
        assert len(listed) == len(set(listed)) == len(sass_opcodes.OPCODES)


class TestDescribe:
    def test_nested_loops(self) -> None:
        inner = word(FFMA) + word(FFMA) + word(BRANCH, distance=-48)
        outer = word(LDG, width=4) + inner + word(BRANCH, distance=-80)
        described = sass.describe(word(FFMA) + outer + word(EXIT))
        assert described["loops"] == [
            {"begin": 16, "end": 80, "pipes": {"control": 2, "fma": 2, "global": 1}},
            {"begin": 32, "end": 64, "pipes": {"control": 1, "fma": 2}},
        ]
        assert described["pipes"] == {"control": 3, "fma": 3, "global": 1}

    def test_two_branches_to_one_target_are_one_loop(self) -> None:
        code = word(FFMA) + word(BRANCH, distance=-32) + word(BRANCH, distance=-48)
        assert sass.loops(sass.decode(code)) == [(0, 32)]

    def test_padding_does_not_count(self) -> None:
        code = word(FFMA) + word(EXIT) + word(BRANCH, distance=-16) + word(NOP) * 3
        assert sass.describe(code) == {
            "instructions": {"EXIT": 1, "FFMA": 1},
            "pipes": {"control": 1, "fma": 1},
            "loops": [],
        }


UNITS = [(unit, arch) for unit in images.units() for arch in ("sm_70", "sm_75")]


@pytest.mark.parametrize(("unit", "arch"), UNITS)
def test_no_unknown_opcode_in_any_kernel(unit: str, arch: str) -> None:
    for name, info in images.info(unit, arch).items():
        assert not [opcode for opcode in info.instructions if opcode.startswith("0x")], name


@pytest.mark.skipif(NVDISASM is None, reason="TITAN_NVDISASM names no nvdisasm that knows Volta")
@pytest.mark.parametrize(("unit", "arch"), UNITS)
def test_agrees_with_nvdisasm(unit: str, arch: str, tmp_path: Path) -> None:
    """Every instruction of every kernel: mnemonic, width, and the targets of branches."""
    cubin = tmp_path / "image.cubin"
    cubin.write_bytes(images.read(unit, arch))
    command = [str(NVDISASM), "-ndf", str(cubin)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    expected = parse(text)
    found = {name: sass.decode(code) for name, code in text_sections(cubin.read_bytes()).items()}
    assert found.keys() == expected.keys()
    for name, instructions in found.items():
        assert [(each.address, each.name, each.target) for each in instructions] == expected[name], name


def parse(text: str) -> dict[str, list[tuple[int, str, int | None]]]:
    """nvdisasm's listing by kernel: address, name and target of each instruction."""
    kernels: dict[str, list[tuple[int, str, str | None]]] = {}
    labels: dict[str, int] = {}
    waiting: list[str] = []
    name = ""
    for line in text.splitlines():
        if line.startswith(".text."):
            name = line.removeprefix(".text.").rstrip(":")
            kernels[name] = []
        elif label := re.match(r"(\.L_\w+):", line):
            waiting.append(label[1])
        elif instruction := _LINE.match(line):
            address = int(instruction[1], 16)
            labels.update(dict.fromkeys(waiting, address))
            waiting.clear()
            kernels[name].append((address, named(instruction[2], instruction[3]), target(instruction)))
    return {
        name: [(address, text, None if to is None else labels[to]) for address, text, to in instructions]
        for name, instructions in kernels.items()
    }


def named(mnemonic: str, modifiers: str) -> str:
    width = _WIDTH.search(modifiers) if mnemonic in sass._WITH_WIDTH else None
    return mnemonic + (width[0] if width else "")


def target(instruction: re.Match[str]) -> str | None:
    label = re.search(r"`\((\.L_\w+)\)", instruction[4])
    return label[1] if label and instruction[2] == "BRA" else None
