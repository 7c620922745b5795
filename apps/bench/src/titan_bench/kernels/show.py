"""The table of ``titan-bench kernels --emulate``, printed as its rows come."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from titan_bench.kernels.figures import CARDS, KernelRow
from titan_kernels.registry import Op

__all__ = ["Table"]

_LEFT_OUT = "+"
_LEGEND = (
    "sectors: over the algorithmic minimum; wavefronts: over the ideal; occupancy: sm_70/sm_75; us: "
    "predicted by titan_kernels.model, not measured; bound: on Titan RTX, and the share of the time that the "
    "binding unit needs"
)


class Table:
    """Lines of columns whose widths are known before the first row.

    Args:
        ops: The operators that may come.
    """

    def __init__(self, ops: Sequence[Op]) -> None:
        labels = [case.label for op in ops for case in op.cases() if case.realistic]
        headers = ("sectors", "wavefronts", "regs", "spills", "occupancy", *(f"{each} us" for each in CARDS))
        self._widths = [_widest("op", (op.name for op in ops)), _widest("shape", labels), *map(len, headers)]
        self._header = ("op", "shape", *headers, "bound (of it)")
        self._left_out: dict[str, tuple[str, ...]] = {}

    def add(self, row: KernelRow) -> None:
        """Print a row, the first one below the header."""
        if self._header:
            self._print(self._header)
            self._header = ()
        if row.left_out:
            self._left_out[row.op] = row.left_out
        self._print(_cells(row))

    def end(self) -> None:
        """Print what the columns mean."""
        for op, names in self._left_out.items():
            click.echo(f"{_LEFT_OUT} {op}: without PyTorch's {', '.join(names)}, whose time is not predicted")
        click.echo(_LEGEND)

    def _print(self, cells: Sequence[str]) -> None:
        texts = [text.ljust(width) for text, width in zip(cells[:2], self._widths, strict=False)]
        numbers = [text.rjust(width) for text, width in zip(cells[2:-1], self._widths[2:], strict=True)]
        click.echo("  ".join([*texts, *numbers, cells[-1]]))


def _widest(header: str, texts: Iterable[str]) -> int:
    return max(map(len, (header, *texts)))


def _cells(row: KernelRow) -> list[str]:
    mark = _LEFT_OUT if row.left_out else ""
    return [
        row.op,
        row.case,
        f"{row.sectors:.3f}",
        f"{row.wavefronts:.3f}",
        str(row.registers),
        str(row.spills),
        "/".join(f"{row.occupancy[arch]:.0%}" for arch in ("sm_70", "sm_75")),
        *(f"{row.microseconds[label]:,.1f}{mark}" for label in CARDS),
        f"{row.bound['Titan RTX']} ({row.of_bound['Titan RTX']:.0%})",
    ]
