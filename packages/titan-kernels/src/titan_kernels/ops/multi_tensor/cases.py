"""Arguments for tests, counters and benchmarks of this room."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from titan_kernels.cases import Case, Maker

__all__ = ["cast_cases", "norm_cases"]

_SHAPES = ((3, 768), (5,), (61, 7), (), (0, 4), (1, 40000), (2, 2, 2))
# A transformer's matrices, and vectors of its norms and biases.
_LAYER = ((2304, 768), (768, 768), (3072, 768), (768, 3072), (768,), (768,), (3072,))
_DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def _list(m: Maker, shapes: Any = _SHAPES, dtype: torch.dtype | None = None) -> list[Tensor]:
    return [m.normal(*shape, dtype=dtype) for shape in shapes]


def _mixed(m: Maker) -> list[Tensor]:
    return [m.normal(*shape, dtype=_DTYPES[i % 3]) for i, shape in enumerate(_SHAPES)]


def _strange(m: Maker, value: float) -> list[Tensor]:
    tensors = _list(m)
    tensors[2][5, 5] = value
    return tensors


def _views(m: Maker) -> list[Tensor]:
    """Transposed, unaligned, with gaps, and expanded."""
    return [m.normal(9, 40).t(), m.normal(98)[1:], m.normal(6, 50)[:, ::2], m.normal(4, 1).expand(4, 3)]


def _case(label: str, make: Any, large: bool = False) -> Case:
    return Case(label, make, large)


def norm_cases() -> list[Case]:
    """For ``titan::multi_tensor_norm``."""
    return [
        _case("list", lambda m: (_list(m), False)),
        _case("each", lambda m: (_list(m), True)),
        _case("mixed dtypes", lambda m: (_mixed(m), True)),
        _case("many tensors", lambda m: (_list(m, ((3,),) * 450), True)),
        _case("one tensor", lambda m: (_list(m, ((100,),)), True)),
        _case("no elements", lambda m: (_list(m, ((0,), (3, 0))), True)),
        _case("views", lambda m: (_views(m), True)),
        _case("infinity", lambda m: (_strange(m, float("inf")), True)),
        _case("NaN", lambda m: (_strange(m, float("nan")), True)),
        _case("large values", lambda m: ([x * 1e4 for x in _list(m, dtype=torch.float32)], True)),
        _case("4 layers", lambda m: (_list(m, _LAYER * 4), False), True),
        _case("4 layers, each", lambda m: (_list(m, _LAYER * 4), True), True),
    ]


def cast_cases() -> list[Case]:
    """For ``titan::multi_tensor_cast``."""

    def to(dtype: torch.dtype, shapes: Any = _SHAPES, scale: Any = None, factor: float = 1.0) -> Any:
        def make(m: Maker) -> tuple[Any, ...]:
            sources = _list(m, shapes)
            return sources, [torch.zeros_like(x, dtype=dtype) for x in sources], scale and scale(m), factor

        return make

    def unscale(m: Maker) -> Tensor:
        return m.uniform(low=0.5, high=1.5, dtype=torch.float32)

    def views(m: Maker) -> tuple[Any, ...]:
        sources = _views(m)
        targets = [m.normal(9, 40).t(), m.normal(99)[2:], m.normal(25, 6).t(), m.normal(4, 6)[:, ::2]]
        return sources, targets, None, 1.0

    return [
        *(_case(f"to {dtype}", to(dtype)) for dtype in _DTYPES),
        *(_case(f"to {dtype}, scaled", to(dtype, scale=unscale, factor=0.25)) for dtype in _DTYPES),
        _case("many tensors", to(torch.float32, ((3,),) * 300)),
        _case("mixed dtypes", lambda m: (_mixed(m), [x.float() for x in _mixed(m)], None, 2.0)),
        _case("no elements", to(torch.float32, ((0,), (3, 0)))),
        _case("views", views),
        _case("4 layers to fp32", to(torch.float32, _LAYER * 4), True),
        _case("4 layers to fp16, unscaled", to(torch.float16, _LAYER * 4, unscale), True),
    ]
