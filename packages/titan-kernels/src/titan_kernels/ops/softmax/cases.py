"""Arguments for tests, counters and benchmarks of this room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from titan_kernels.cases import Case, Maker
from titan_kernels.ops.softmax import reference

__all__ = ["DECLINED", "backward_cases", "forward_cases"]

# One warp, several, a full block, rows that are read twice; whole vectors and shifted rows.
_SHAPES = (
    *((3, 768), (5, 64), (2, 769), (7, 1), (9, 130), (2, 2047), (2, 16384), (1, 16383)),
    *((2, 16392), (1, 33001), (1, 70001), (2, 3, 40, 40), (0, 64), (3, 0)),
)
_REALISTIC = ((4, 8, 512, 512), (2, 4, 1024, 1024), (1, 2, 2048, 2048), (64, 8192))
_ODD = ((2, 4, 1023, 1023),)
_LONG = (16, 65536)
# Triton's programs hold their rows in registers.
DECLINED = {"triton": ("1x70001",)}
_HALVES = (torch.float16, torch.bfloat16)

_Make = Callable[[Maker, tuple[int, ...]], tuple[Any, ...]]


def _shaped(make: _Make) -> list[Case]:
    bounded = [
        *((shape, False, 1.02) for shape in _SHAPES),
        *((shape, True, 1.02) for shape in _REALISTIC),
        *((shape, True, 1.15) for shape in _ODD),
    ]
    return [_case("x".join(map(str, shape)), make, shape, large, bound) for shape, large, bound in bounded]


def _case(label: str, make: _Make, shape: tuple[int, ...], realistic: bool, sector_bound: float) -> Case:
    return Case(label, lambda m: make(m, shape), realistic, sector_bound)


def _keep(m: Maker, *shape: int) -> Tensor:
    """Three of four keys are kept; none in a row of the first query."""
    keep = m.uniform(*shape, low=0.0, high=1.0, dtype=torch.float32) < 0.75
    keep[..., :1, :] = keep[..., :1, :] & (shape[-2] == 1)
    return keep


def _masked(
    label: str,
    mask: Callable[[Maker], Tensor],
    shape: tuple[int, ...] = (2, 3, 16, 64),
    diagonal: int | None = None,
    zero: bool = False,
) -> Case:
    return Case(label, lambda m: (m.normal(*shape), mask(m), 0.5, diagonal, zero, None))


def _mask_cases() -> list[Case]:
    return [
        _masked("bool mask of keys", lambda m: _keep(m, 2, 1, 1, 64)),
        _masked("bool mask of a batch", lambda m: _keep(m, 2, 1, 16, 64), zero=True),
        _masked("bool mask, all hidden", lambda m: _keep(m, 2, 1, 16, 64)),
        _masked("bool mask, odd rows", lambda m: _keep(m, 5, 67), (2, 3, 5, 67)),
        _masked("bool mask and causal", lambda m: _keep(m, 2, 1, 16, 64), diagonal=3, zero=True),
        _masked("bool mask of queries", lambda m: _keep(m, 2, 3, 16, 1), zero=True),
        _masked("bool mask, transposed", lambda m: _keep(m, 2, 1, 64, 16).mT),
        _masked("bool mask, long rows", lambda m: _keep(m, 2, 1, 16400), (2, 3, 16400)),
        _masked("bias of heads", lambda m: m.normal(1, 3, 16, 64)),
        _masked("bias, odd rows", lambda m: m.normal(3, 5, 67), (2, 3, 5, 67)),
        _masked("bias, long rows", lambda m: m.normal(3, 16400), (2, 3, 16400)),
        _masked("fp32 bias", lambda m: m.normal(2, 1, 16, 64, dtype=torch.float32)),
        _masked("fp32 bias, unaligned", lambda m: m.normal(65, dtype=torch.float32)[1:]),
        _masked("single number", lambda m: m.normal(1).reshape(())),
    ]


def forward_cases() -> list[Case]:
    """For ``titan::softmax``."""

    def plain(m: Maker, shape: tuple[int, ...]) -> tuple[Any, ...]:
        return m.normal(*shape, scale=2.0), None, 0.7, None, False, None

    def causal(m: Maker, shape: tuple[int, ...]) -> tuple[Any, ...]:
        return m.normal(*shape), None, 0.125, shape[-1] - shape[-2], shape[-1] < shape[-2], None

    def wide(columns: int) -> Case:
        def make(m: Maker) -> tuple[Any, ...]:
            return m.normal(3, columns), None, 0.7, None, False, torch.float32

        return Case(f"fp32 result, {columns}", make, dtypes=_HALVES)

    return [
        *_shaped(plain),
        *_mask_cases(),
        _case("causal", causal, (2, 3, 33, 33), False, 1.02),
        _case("causal, more keys", causal, (3, 9, 70), False, 1.02),
        _case("causal, fewer keys", causal, (3, 40, 33), False, 1.02),
        _case("causal, long rows", causal, (1, 2, 20000), False, 1.02),
        _case("causal 1024", causal, (2, 4, 1024, 1024), True, 1.02),
        _case("rows read twice", plain, _LONG, True, 1.52),
        Case("large scores", lambda m: (m.normal(4, 96, scale=1e4), None, 1.0, None, False, None)),
        Case("infinite scores", lambda m: (m.normal(4, 96, scale=1e30), None, -1.0, None, False, None)),
        Case("strided", lambda m: (m.normal(96, 6).t(), None, 1.0, None, False, None)),
        Case("unaligned", lambda m: (m.normal(4 * 97 + 1)[1:].view(4, 97), None, 1.0, None, False, None)),
        *(wide(columns) for columns in (768, 131, 16500)),
        # The mask is read again for every head; that comes from the L2 cache.
        Case("bool mask 1024", _attention_mask, realistic=True, sector_bound=1.2),
    ]


def _attention_mask(m: Maker) -> tuple[Any, ...]:
    return m.normal(2, 4, 1024, 1024), _keep(m, 2, 1, 1024, 1024), 0.125, None, True, None


def backward_cases() -> list[Case]:
    """For ``titan::softmax_backward``."""

    def make(m: Maker, shape: tuple[int, ...], diagonal: int | None = None) -> tuple[Any, ...]:
        y = m.derived(reference.softmax, m.normal(*shape), None, 1.0, diagonal, True, None)
        return m.normal(*shape), y, 0.5, diagonal, None

    def causal(m: Maker, shape: tuple[int, ...]) -> tuple[Any, ...]:
        return make(m, shape, shape[-1] - shape[-2])

    return [
        *_shaped(make),
        _case("causal", causal, (2, 3, 33, 33), False, 1.02),
        _case("causal, fewer keys", causal, (3, 40, 33), False, 1.02),
        _case("causal, long rows", causal, (1, 2, 20000), False, 1.02),
        _case("causal 1024", causal, (2, 4, 1024, 1024), True, 1.02),
        _case("rows read twice", make, _LONG, True, 1.69),
    ]
