"""The table of ``titan-bench kernels`` on a GPU."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from titan_bench.kernels.measure import OWN_BOUNDS, PEER_BOUNDS, TimedCase

__all__ = ["print_times"]

_WIDTH = 170  # where the output is no terminal
_COUNTERPARTS = ("eager", "compile", "liger")
_LEGEND = (
    "us: median on the device, from a cold L2 cache, and half the distance of the quartiles; GB/s: the least "
    "traffic over the time of ours (the first that has one); of peak: of the data sheet's bandwidth; vs: how "
    "many times faster ours is. Whatever has a time passed its bound against float64: for ours "
    f"{OWN_BOUNDS[0]:g} times the error of fp32 inside, for the others {PEER_BOUNDS[0]:g} times that and "
    f"{PEER_BOUNDS[1]:g} units in the last place of the largest result"
)


def print_times(rows: Sequence[TimedCase], bandwidth_gbs: float | None) -> None:
    """A line per operator and shape, and the reasons of what has no time.

    Args:
        rows: The results.
        bandwidth_gbs: Of the card, by its data sheet; absent for an unknown card.
    """
    console = Console()
    if not console.is_terminal:
        console = Console(width=_WIDTH)
    names = [*dict.fromkeys(name for row in rows for name in row.own), *_COUNTERPARTS]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for header in ("op", "shape"):
        table.add_column(header)
    for header in (*(f"{name} us" for name in names), "GB/s", "of peak", "vs eager", "vs compile"):
        table.add_column(header, justify="right")
    for row in rows:
        table.add_row(row.op, row.case, *(_time(row, name) for name in names), *_ours(row, bandwidth_gbs))
    console.print(table)
    _print_notes(rows, console)
    console.print(_LEGEND, style="dim")


def _time(row: TimedCase, name: str) -> str:
    median = row.median(name)
    if median is None:
        return next((word for word in ("wrong", "failed") if row.notes.get(name, "").startswith(word)), "-")
    first, third = row.quartiles(name)
    return f"{median * 1e6:,.1f} ±{(third - first) / 2 / median:.0%}"


def _ours(row: TimedCase, bandwidth_gbs: float | None) -> list[str]:
    if row.ours is None:
        return ["-"] * 4
    rate = row.bytes_per_second(row.ours) * 1e-9
    share = "-" if bandwidth_gbs is None else f"{rate / bandwidth_gbs:.0%}"
    speedups = (row.speedup(row.ours, over) for over in ("eager", "compile"))
    return [f"{rate:,.0f}", share, *("-" if each is None else f"{each:.2f}x" for each in speedups)]


def _print_notes(rows: Sequence[TimedCase], console: Console) -> None:
    """Each reason once, with the operators and shapes it holds for."""
    places: dict[tuple[str, str], dict[str, list[str]]] = {}
    for row in rows:
        for name, note in row.notes.items():
            places.setdefault((name, note), {}).setdefault(row.op, []).append(row.case)
    for (name, note), shapes in places.items():
        where = ", ".join(_place(rows, op, labels) for op, labels in shapes.items())
        everywhere = sum(map(len, shapes.values())) == len(rows)
        text = f"{name}, {'all' if everywhere else where}: {note}"
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def _place(rows: Sequence[TimedCase], op: str, labels: Sequence[str]) -> str:
    whole = len(labels) == sum(row.op == op for row in rows)
    return op if whole else f"{op} ({', '.join(labels)})"
