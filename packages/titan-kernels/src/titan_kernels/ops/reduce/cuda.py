"""Launches of the CUDA kernels of this room."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from titan_kernels.launch import Packed, launch
from titan_kernels.ops.reduce.collapse import Collapsed, collapse, reduced_size
from titan_kernels.ops.reduce.kinds import KINDS, Kind, divisor
from titan_kernels.platforms import FLOATS, cuda_ready, multiprocessors, suffix
from titan_kernels.registry import YES, Verdict, no

if TYPE_CHECKING:
    from titan_kernels.launch import Argument

__all__ = ["reduce", "supports", "supports_var_mean", "var_mean"]

_UNIT = "reduce"
_WARP = 32
_PLANES = {"total": 1, "largest": 1, "moments": 4}
_LANES = {"total": 8, "largest": 8, "moments": 4}  # at most in a vector, see LANES in kernel.cu

_ROW_THREADS = 256
_ROW_BLOCKS = 4  # per multiprocessor
_WARP_VECTORS = 256  # the longest row of a single warp
_SHORTEST_SEGMENT = 16384
_SEGMENT_UNIT = 1024
_MOST_ROWS_TOGETHER = 8

_COLUMN_TEAMS = 16
_COLUMN_THREADS = 768  # per multiprocessor; more would write more records
_FEWEST_LINES = 64  # that a block merges into one record
_SHORTEST_LINE = 64  # vectors

_MERGE_THREADS = 256

# Columns of a line, of which the kernels count up to 2^31; a line has at most eight times the results.
_MOST_RESULTS = 2**28 - 1


def supports(
    x: Tensor, kind: str, dims: Sequence[int], keepdim: bool, correction: float, dtype: torch.dtype | None
) -> Verdict:
    """Whether :func:`reduce` serves the call."""
    ready = cuda_ready(x)
    if not ready.ok:
        return ready
    if dtype is not None and dtype not in FLOATS:
        return no(f"the result's dtype ({dtype}) is not one of fp16, bf16 and fp32")
    if (reduced := reduced_size(x, dims)) == 0:
        return no("there are no elements to reduce")
    return no(f"more than {_MOST_RESULTS} results") if x.numel() // reduced > _MOST_RESULTS else YES


def supports_var_mean(
    x: Tensor, dims: Sequence[int], keepdim: bool, correction: float, dtype: torch.dtype | None
) -> Verdict:
    """Whether :func:`var_mean` serves the call."""
    return supports(x, "var", dims, keepdim, correction, dtype)


def reduce(
    x: Tensor, kind: str, dims: Sequence[int], keepdim: bool, correction: float, dtype: torch.dtype | None
) -> Tensor:
    """One result."""
    whole = collapse(x, dims)
    out = x.new_empty(whole.outputs, dtype=dtype or x.dtype)
    _run(whole, KINDS[kind], [out], divisor(kind, reduced_size(x, dims), correction))
    return whole.restore(out, x, dims, keepdim)


def var_mean(
    x: Tensor, dims: Sequence[int], keepdim: bool, correction: float, dtype: torch.dtype | None
) -> tuple[Tensor, Tensor]:
    """Both results in one pass."""
    whole = collapse(x, dims)
    variance, mean = (x.new_empty(whole.outputs, dtype=dtype or x.dtype) for _ in range(2))
    _run(whole, KINDS["var"], [variance, mean], divisor("var", reduced_size(x, dims), correction))
    return whole.restore(variance, x, dims, keepdim), whole.restore(mean, x, dims, keepdim)


def _run(whole: Collapsed, kind: Kind, out: list[Tensor], by: float) -> None:
    typed = (Packed(out if out[0].dtype == dtype else (), 2) for dtype in FLOATS)
    results: tuple[Argument, ...] = (*typed, by, kind.root)
    if whole.outputs:
        (_rows if whole.x.shape[3] == 1 else _columns)(whole.x, kind, results)


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


def _rows(x: Tensor, kind: Kind, results: tuple[Argument, ...]) -> None:
    lead, outer, n, _ = x.shape
    rows = lead * outer
    short = n * x.element_size() <= _WARP_VECTORS * 16
    team = _WARP if short else _ROW_THREADS
    teams = _ROW_THREADS // team
    resident = multiprocessors(x.device) * _ROW_BLOCKS
    group = min(_ceil(rows, resident * teams), _MOST_ROWS_TOGETHER if short else 2)
    blocks = _ceil(rows, teams * group)
    blocks = _ceil(blocks, _ceil(blocks, resident))  # all of them with as many rows
    segments = max(1, min(resident // blocks, n // _SHORTEST_SEGMENT))
    segment = min(_ceil(_ceil(n, segments), _SEGMENT_UNIT) * _SEGMENT_UNIT, n)
    segments = _ceil(n, segment)
    count = segments * lead
    partial = None if count == 1 else _records(x, kind, count * outer)
    launch(
        _UNIT,
        f"reduce_rows_{kind.accumulator}_{suffix(x.dtype)}",
        (segments, blocks, 1),
        (team, teams, 1),
        (x, partial, *results, rows, n, segment, group, kind.transform),
    )
    if partial is not None:
        _merge(partial, kind, results, 1, outer, count)


def _columns(x: Tensor, kind: Kind, results: tuple[Argument, ...]) -> None:
    _, outer, reduced, inner = x.shape
    width, length = min(16 // x.element_size(), _LANES[kind.accumulator]), reduced * inner
    # Rows of inner elements go into lines: whole vectors, and enough of them for full warps.
    fold = width // math.gcd(inner, width)
    fold *= _ceil(_SHORTEST_LINE, fold * inner // width) if fold * inner < _SHORTEST_LINE * width else 1
    line = fold * inner
    tiles, lines = _ceil(line, _WARP * width), _ceil(length + width - 1, line)
    teams = min(_COLUMN_TEAMS, 1 << (lines - 1).bit_length())
    resident = multiprocessors(x.device) * _COLUMN_THREADS // (_WARP * _COLUMN_TEAMS)
    parts = max(1, min(resident // (outer * tiles), lines // _FEWEST_LINES))
    direct = parts == 1 and fold == 1 and length % width == 0
    partial = None if direct else _records(x, kind, outer * parts * line)
    launch(
        _UNIT,
        f"reduce_columns_{kind.accumulator}_{suffix(x.dtype)}",
        (outer * tiles, parts, 1),
        (_WARP, teams, 1),
        (x, partial, *results, length, line, tiles, kind.transform),
    )
    if partial is not None:
        _merge(partial, kind, results, outer, inner, parts * fold, length, width)


def _records(x: Tensor, kind: Kind, count: int) -> Tensor:
    return x.new_empty((_PLANES[kind.accumulator], count), dtype=torch.float32)


def _merge(
    partial: Tensor,
    kind: Kind,
    results: tuple[Argument, ...],
    outer: int,
    inner: int,
    count: int,
    length: int = 0,
    width: int = 1,
) -> None:
    across = min(_WARP, 1 << (outer * inner - 1).bit_length())
    launch(
        _UNIT,
        f"reduce_merge_{kind.accumulator}",
        _ceil(outer * inner, across),
        (across, _MERGE_THREADS // across, 1),
        (partial, *results, outer * inner, inner, count, length, width),
    )
