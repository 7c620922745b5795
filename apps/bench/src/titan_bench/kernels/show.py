"""The table of ``titan-bench kernels --emulate``."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from titan_bench.kernels.emulate import CARDS, KernelRow

__all__ = ["print_rows"]

_WIDTH = 150  # where the output is no terminal


def print_rows(rows: Sequence[KernelRow]) -> None:
    """A line per operator and shape."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in ("op", "shape"):
        table.add_column(header)
    for header in ("sectors", "wavefronts", "regs", "spills", "occupancy"):
        table.add_column(header, justify="right")
    for label, _, _ in CARDS:
        table.add_column(f"{label} us", justify="right")
    table.add_column("bound (of it)")
    for row in rows:
        table.add_row(*_cells(row))
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    console.print(table)
    console.print(
        "sectors: over the algorithmic minimum; wavefronts: over the ideal; occupancy: sm_70/sm_75; us: "
        "predicted by titan_kernels.model, not measured; bound: on Titan RTX, and the share of the time that "
        "the binding unit needs",
        style="dim",
    )


def _cells(row: KernelRow) -> list[str]:
    return [
        row.op,
        row.case,
        f"{row.sectors:.3f}",
        f"{row.wavefronts:.3f}",
        str(row.registers),
        str(row.spills),
        "/".join(f"{row.occupancy[arch]:.0%}" for arch in ("sm_70", "sm_75")),
        *(f"{row.microseconds[label]:,.1f}" for label, _, _ in CARDS),
        f"{row.bound['Titan RTX']} ({row.of_bound['Titan RTX']:.0%})",
    ]
