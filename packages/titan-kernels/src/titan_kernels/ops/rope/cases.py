"""Arguments for tests, counters and benchmarks of this room."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from titan_kernels.cases import Case, Maker

__all__ = ["DECLINED_IN_PLACE", "cases", "in_place_cases"]

DECLINED_IN_PLACE = {"cuda": ("strided heads",), "triton": ("strided heads",)}
# batch, time, heads of q and k, D
_SHAPES = ((2, 5, 4, 2, 64), (1, 3, 3, 1, 128), (2, 3, 2, 2, 6), (1, 2, 5, 5, 96), (3, 1, 1, 1, 2),
           (1, 2, 2, 1, 576), (0, 3, 2, 2, 64), (2, 0, 2, 2, 64))  # fmt: skip
_REALISTIC = ((8, 1024, 12, 12, 64), (4, 2048, 32, 8, 128), (1, 4096, 32, 8, 64), (2, 1024, 16, 16, 256))


def _tables(m: Maker, rows: int, pairs: int, dtype: torch.dtype | None) -> tuple[Tensor, Tensor]:
    """Cosines and sines of any angles."""
    angles = m.uniform(rows, pairs, low=0.0, high=6.2, dtype=torch.float32)
    return angles.cos().to(dtype or m.dtype), angles.sin().to(dtype or m.dtype)


def _heads(m: Maker, b: int, t: int, h: int, d: int) -> Tensor:
    return m.normal(b, t, h, d)


def _fused(m: Maker, b: int, t: int, hq: int, hk: int, d: int) -> tuple[Tensor, Tensor]:
    """Views of a fused projection's output."""
    qkv = m.normal(b, t, hq + 2 * hk, d)
    return qkv[:, :, :hq], qkv[:, :, hq : hq + hk]


def _restarting(m: Maker, b: int, t: int) -> Tensor:
    """Positions of packed documents."""
    return (torch.arange(t).expand(b, t) % 3).to(m.device)


def _pair_case(label: str, shape: tuple[int, ...], large: bool = False, **options: Any) -> Case:
    b, t, hq, hk, d = shape

    def make(m: Maker) -> tuple[Any, ...]:
        q, k = options.get("tensors", lambda m: (_heads(m, b, t, hq, d), _heads(m, b, t, hk, d)))(m)
        positions = options.get("positions", lambda m: None)(m)
        pairs = options.get("pairs", d // 2)
        tables = _tables(m, max(t, 4), pairs, options.get("tables", torch.float32))
        return q, k, *tables, positions, options.get("interleaved", False), options.get("inverse", False)

    return Case(label, make, large)


def _heads_first(m: Maker, b: int, t: int, hq: int, hk: int, d: int) -> tuple[Tensor, Tensor]:
    """(B, H, T, D) in memory."""
    return m.normal(b, hq, t, d).transpose(1, 2), m.normal(b, hk, t, d).transpose(1, 2)


def _one(q: Any) -> Any:
    return lambda m: (q(m), None)


def _variants() -> list[Case]:
    shape = (2, 5, 4, 2, 64)
    b, t, hq, hk, d = shape
    return [
        _pair_case("one tensor", shape, tensors=_one(lambda m: _heads(m, b, t, hq, d))),
        _pair_case("inverse", shape, inverse=True),
        _pair_case("tables like x", shape, tables=None),
        _pair_case("tables like x, interleaved", shape, tables=None, interleaved=True),
        _pair_case("heads first", shape, tensors=lambda m: _heads_first(m, b, t, hq, hk, d)),
        _pair_case("fused projection", shape, tensors=lambda m: _fused(m, b, t, hq, hk, d)),
        _pair_case("packed documents", shape, positions=lambda m: _restarting(m, b, t)),
        _pair_case("positions of all", shape, positions=lambda m: _restarting(m, 1, t)[0].to(torch.int32)),
        _pair_case("positions outside", shape, positions=lambda m: _restarting(m, b, t) * 4 - 1),
        _pair_case("partial", shape, pairs=16),
        _pair_case("partial, interleaved", shape, pairs=16, interleaved=True),
        _pair_case("partial, odd pairs", shape, pairs=5),
        _pair_case("partial, odd pairs, interleaved", shape, pairs=5, interleaved=True),
        _pair_case(
            "unaligned", shape, tensors=_one(lambda m: m.normal(b * t * hq * d + 1)[1:].view(b, t, hq, d))
        ),
        _pair_case("odd strides", shape, tensors=_one(lambda m: m.normal(b, t, hq, d + 3)[..., 1 : d + 1])),
        _pair_case("strided heads", shape, tensors=_one(lambda m: m.normal(b, t, d, hq).transpose(2, 3))),
    ]


def cases() -> list[Case]:
    """For ``titan::rope``."""
    return [
        *(_pair_case(f"{'x'.join(map(str, s))}{' interleaved' * i}", s, interleaved=bool(i))
          for s in _SHAPES for i in range(2)),
        *_variants(),
        *(_pair_case("x".join(map(str, s)), s, large=True) for s in _REALISTIC),
        *_large_variants(),
    ]  # fmt: skip


def _large_variants() -> list[Case]:
    shape = b, t, hq, hk, d = (4, 2048, 32, 8, 128)
    return [
        _pair_case("large, interleaved", shape, True, interleaved=True),
        _pair_case("large, partial", shape, True, pairs=32),
        _pair_case("large, fused projection", shape, True, tensors=lambda m: _fused(m, b, t, hq, hk, d)),
        _pair_case("large, heads first", shape, True, tensors=lambda m: _heads_first(m, b, t, hq, hk, d)),
        _pair_case("large, packed documents", shape, True, positions=lambda m: _restarting(m, b, t)),
    ]


def in_place_cases() -> list[Case]:
    """For ``titan::rope_``."""
    return [case for case in cases() if not case.realistic or case.label.startswith("large")]
