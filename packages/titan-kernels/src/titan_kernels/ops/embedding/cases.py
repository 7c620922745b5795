"""Arguments for tests, counters and benchmarks of this room."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from titan_kernels.cases import Case, Maker

__all__ = ["backward_cases", "forward_cases"]

_NO_PADDING = -1
# positions, rows of the table, columns; 2056 columns are more than one group of fp16
_SHAPES = (
    (5, 7, 64),
    (9, 3, 96),
    (3, 5, 1),
    (4, 6, 13),
    (6, 4, 769),
    (3, 4, 2056),
    (3, 9, 2051),
    (0, 5, 8),
    (3, 4, 0),
)
_REALISTIC = ((8192, 32000, 768), (4096, 32000, 2048), (2048, 8192, 4096))
_STEP = 4801  # a prime: neighbours are far apart
_ODD = ((4096, 8192, 769),)


def _indices(m: Maker, positions: int, rows: int) -> Tensor:
    """Random in small shapes; spread evenly in large ones, so that counts hold for any seed."""
    if positions < 2000:
        return m.integers(positions, high=rows)
    place = torch.arange(positions, device=m.device)
    return place * _STEP % positions * rows // positions


def _shapes() -> list[tuple[int, int, int, bool, float]]:
    small = [(*shape, False, 1.02) for shape in _SHAPES]
    return [*small, *((*s, True, 1.02) for s in _REALISTIC), *((*s, True, 1.15) for s in _ODD)]


def forward_cases() -> list[Case]:
    """For ``titan::embedding``."""

    def make(m: Maker, positions: int, rows: int, columns: int, scale: float = 1.0) -> tuple[Any, ...]:
        return _indices(m, positions, rows), m.normal(rows, columns), _NO_PADDING, scale

    return [
        *(
            Case(f"{p} of {v}x{n}", functools.partial(make, positions=p, rows=v, columns=n), large, bound)
            for p, v, n, large, bound in _shapes()
        ),
        Case("scale", lambda m: make(m, 8, 9, 72, scale=8.485)),
        Case("3 dims", lambda m: (m.integers(2, 3, 4, high=5), m.normal(5, 40), _NO_PADDING, 1.0)),
        Case("1 index", lambda m: (m.integers(1, high=5)[0], m.normal(5, 40), _NO_PADDING, 1.0)),
        Case("strided", lambda m: (m.integers(8, high=5)[::2], m.normal(40, 5).t(), _NO_PADDING, 1.0)),
        Case(
            "unaligned",
            lambda m: (m.integers(4, high=5), m.normal(5 * 24 + 1)[1:].view(5, 24), _NO_PADDING, 1.0),
        ),
    ]


def backward_cases() -> list[Case]:
    """For ``titan::embedding_backward``."""

    def make(
        m: Maker, positions: int, rows: int, columns: int, padding: int = _NO_PADDING, scale: float = 1.0,
        fp32: bool = False,
    ) -> tuple[Any, ...]:  # fmt: skip
        return m.normal(positions, columns), _indices(m, positions, rows), rows, padding, scale, fp32

    def nested(m: Maker) -> tuple[Any, ...]:
        return m.normal(2, 3, 40), m.integers(2, 3, high=4), 4, _NO_PADDING, 1.0, False

    def unaligned(m: Maker) -> tuple[Any, ...]:
        return m.normal(5 * 24 + 1)[1:].view(5, 24), m.integers(5, high=4), 4, _NO_PADDING, 1.0, False

    return [
        *(
            Case(f"{p} of {v}x{n}", functools.partial(make, positions=p, rows=v, columns=n), large, bound)
            for p, v, n, large, bound in _shapes()
        ),
        # Their segments go in pieces, which are fp32: more traffic.
        Case("16384 of 50x1024", lambda m: make(m, 16384, 50, 1024), True, 1.1),
        Case("one row 900 times", lambda m: make(m, 900, 1, 24)),
        Case("long segments", lambda m: make(m, 1500, 5, 40)),
        Case("long segments, odd", lambda m: make(m, 700, 3, 13)),
        Case("long segments, two groups", lambda m: make(m, 300, 2, 2056)),
        Case("padding", lambda m: make(m, 20, 4, 40, padding=2)),
        Case("scale, fp32", lambda m: make(m, 20, 4, 40, scale=8.485, fp32=True)),
        Case("3 dims", nested),
        Case("unaligned", unaligned),
    ]
