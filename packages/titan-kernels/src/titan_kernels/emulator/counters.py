"""What a launch under the emulator did, in numbers: per source line and in all."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

__all__ = ["Counters", "LaunchReport", "LineCounters", "line_counters"]


@dataclass(frozen=True)
class Counters:
    """Sums over warps; a request is one memory instruction of a warp.

    Sectors are 32 bytes of global memory.  A wavefront is one pass over the 32 banks of shared memory:
    accesses of up to 4 bytes take one at best, of 8 bytes two and of 16 bytes four.
    """

    global_load_requests: int = 0
    global_load_sectors: int = 0
    """Distinct sectors of each request."""
    global_load_ideal_sectors: int = 0
    """Sectors that the distinct bytes of each request would fill."""
    global_load_bytes: int = 0
    """Bytes of all lanes."""
    global_store_requests: int = 0
    global_store_sectors: int = 0
    global_store_ideal_sectors: int = 0
    global_store_bytes: int = 0
    global_atomic_requests: int = 0
    global_atomics: int = 0
    """Atomic operations of single threads."""
    shared_load_requests: int = 0
    """Includes ldmatrix."""
    shared_load_wavefronts: int = 0
    shared_load_ideal_wavefronts: int = 0
    shared_store_requests: int = 0
    shared_store_wavefronts: int = 0
    shared_store_ideal_wavefronts: int = 0
    shared_atomic_requests: int = 0
    shared_atomics: int = 0
    mma_m16n8k8: int = 0
    mma_m8n8k4: int = 0
    mma_m8n8k16_s8: int = 0
    mma_flops: int = 0
    """Two per multiply-add of a matrix instruction."""
    barriers: int = 0
    """Of blocks: one for all threads."""
    warp_syncs: int = 0
    shuffles: int = 0
    votes: int = 0
    special_functions: int = 0
    """Calls of single threads of expf, rsqrtf and the like."""

    @property
    def bank_conflicts(self) -> int:
        """Wavefronts of shared memory beyond the ideal."""
        return (
            self.shared_load_wavefronts
            - self.shared_load_ideal_wavefronts
            + self.shared_store_wavefronts
            - self.shared_store_ideal_wavefronts
        )

    def __add__(self, other: Counters) -> Counters:
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Counters(*(a + b for a, b in pairs))


@dataclass(frozen=True)
class LineCounters:
    """Counters of one source line."""

    file: str
    line: int
    place: str
    """Short form of file and line, such as ``"rms_norm/kernel.cu:41"``."""
    counters: Counters


@dataclass(frozen=True)
class LaunchReport:
    """One launch; counters are there with ``emulated(count=True)``."""

    unit: str
    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    blocks_run: int
    """Fewer than the grid has with ``emulated(blocks=...)``."""
    shared_bytes: int
    """Shared memory of a block, static and dynamic; static arrays that no thread reached don't count."""
    unique_load_sectors: int = 0
    """Sectors that the whole launch loads, each counted once: what any cache has to fetch at least."""
    unique_store_sectors: int = 0
    lines: tuple[LineCounters, ...] = ()

    @property
    def counters(self) -> Counters:
        """Sums over all lines."""
        return sum((line.counters for line in self.lines), Counters())

    def to_json(self) -> str:
        """Everything as a JSON object."""
        return json.dumps(dataclasses.asdict(self) | {"total": dataclasses.asdict(self.counters)})

    def table(self) -> str:
        """Text with a row per source line, a total and the distinct sectors of the launch.

        Columns without any count are left out, and without ``emulated(count=True)`` there are none.
        """
        rows = [*((line.place, line.counters) for line in self.lines), ("total", self.counters)]
        grid = "x".join(map(str, self.grid))
        title = f"{self.kernel}: grid {grid}, block {'x'.join(map(str, self.block))}"
        loads, stores = self.unique_load_sectors, self.unique_store_sectors
        distinct = f"distinct sectors: {loads:,} loaded, {stores:,} stored"
        return "\n".join([title, *_aligned(_cells(rows)), distinct])


_COLUMNS = (
    ("loads", "global_load_requests", None),
    ("sectors", "global_load_sectors", "global_load_ideal_sectors"),
    ("stores", "global_store_requests", None),
    ("sectors", "global_store_sectors", "global_store_ideal_sectors"),
    ("atomics", "global_atomics", None),
    ("shared loads", "shared_load_requests", None),
    ("wavefronts", "shared_load_wavefronts", "shared_load_ideal_wavefronts"),
    ("shared stores", "shared_store_requests", None),
    ("wavefronts", "shared_store_wavefronts", "shared_store_ideal_wavefronts"),
    ("shared atomics", "shared_atomics", None),
    ("m16n8k8", "mma_m16n8k8", None),
    ("m8n8k4", "mma_m8n8k4", None),
    ("m8n8k16", "mma_m8n8k16_s8", None),
    ("barriers", "barriers", None),
    ("warp syncs", "warp_syncs", None),
    ("shuffles", "shuffles", None),
    ("votes", "votes", None),
    ("special", "special_functions", None),
)


def _cells(rows: list[tuple[str, Counters]]) -> list[list[str]]:
    """Header and rows; a value beyond its ideal shows both, as ``48/32``."""
    total = rows[-1][1]
    columns = [column for column in _COLUMNS if getattr(total, column[1])]

    def cell(counters: Counters, name: str, ideal: str | None) -> str:
        value = getattr(counters, name)
        best = value if ideal is None else getattr(counters, ideal)
        return "" if value == 0 else f"{value:,}" if value == best else f"{value:,}/{best:,}"

    header = ["line", *(column[0] for column in columns)]
    return [header, *([place, *(cell(c, name, ideal) for _, name, ideal in columns)] for place, c in rows)]


def _aligned(cells: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]

    def row(texts: list[str]) -> str:
        first, *others = zip(texts, widths, strict=True)
        return "  ".join([first[0].ljust(first[1]), *(text.rjust(width) for text, width in others)]).rstrip()

    return [row(texts) for texts in cells]


def line_counters(names: list[str], lines: list[Any]) -> tuple[LineCounters, ...]:
    """Lines of a unit's report that counted anything, in order of file and line."""
    found = [
        LineCounters(file, line, place, Counters(**dict(zip(names, values, strict=True))))
        for file, line, place, values in lines
        if any(values)
    ]
    return tuple(sorted(found, key=lambda each: (each.file, each.line)))
