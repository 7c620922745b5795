"""Arguments for tests, counters and benchmarks of this room."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from titan_kernels.cases import Case, Maker

__all__ = ["backward_cases", "forward_cases"]

# rows, columns
_SHAPES = ((3, 768), (5, 64), (19, 61), (7, 1), (40, 130), (2, 2049), (70, 9), (0, 64), (3, 0))
_REALISTIC = ((16384, 768), (8192, 2048), (4096, 8192))
_ODD = ((16384, 769), (4096, 2049))


def _seed(m: Maker) -> Tensor:
    """Both halves of the key count."""
    return m.integers(high=2**62)


def _unaligned(m: Maker, rows: int, columns: int, start: int) -> Tensor:
    return m.normal(rows * columns + start)[start:].view(rows, columns)


def _case(label: str, make: Any, large: bool = False, bound: float = 1.02) -> Case:
    return Case(label, make, large, bound)


def forward_cases() -> list[Case]:
    """For ``titan::bias_dropout_residual``."""

    def full(m: Maker, rows: int, columns: int) -> tuple[Any, ...]:
        x, residual = m.normal(rows, columns), m.normal(rows, columns)
        return x, m.normal(columns), residual, _seed(m), 0, 0.1

    return [
        *(_case(f"{r}x{n}", lambda m, r=r, n=n: full(m, r, n)) for r, n in _SHAPES),
        _case("no bias", lambda m: (m.normal(9, 131), None, m.normal(9, 131), _seed(m), 0, 0.3)),
        _case("no residual", lambda m: (m.normal(9, 136), m.normal(136), None, _seed(m), 0, 0.3)),
        _case("only dropout", lambda m: (m.normal(3, 5000), None, None, _seed(m), 0, 0.5)),
        _case("p 0", lambda m: (m.normal(9, 40), m.normal(40), m.normal(9, 40), None, 0, 0.0)),
        _case("p 1", lambda m: (m.normal(9, 40), m.normal(40), m.normal(9, 40), None, 0, 1.0)),
        _case("odd offset", lambda m: (m.normal(9, 40), m.normal(40), None, _seed(m), 7, 0.25)),
        _case("far offset", lambda m: (m.normal(9, 41), None, None, _seed(m), 2**34 + 2, 0.25)),
        _case(
            "fp32 bias and residual",
            lambda m: (
                m.normal(9, 132), m.normal(132, dtype=torch.float32), m.normal(9, 132, dtype=torch.float32),
                _seed(m), 0, 0.1,
            ),
        ),
        _case("1 dim", lambda m: (m.normal(80), m.normal(80), m.normal(80), _seed(m), 0, 0.1)),
        _case("3 dims", lambda m: (m.normal(2, 3, 80), m.normal(80), m.normal(2, 3, 80), _seed(m), 0, 0.1)),
        _case("strided", lambda m: (m.normal(96, 6).t(), m.normal(192)[::2], None, _seed(m), 0, 0.5)),
        _case(
            "unaligned",
            lambda m: (_unaligned(m, 4, 97, 1), m.normal(98)[1:], _unaligned(m, 4, 97, 3), _seed(m), 0, 0.1),
        ),
        *(_case(f"{r}x{n}", lambda m, r=r, n=n: full(m, r, n), True) for r, n in _REALISTIC),
        *(_case(f"{r}x{n}", lambda m, r=r, n=n: full(m, r, n), True, 1.15) for r, n in _ODD),
        _case("8192x2048 no bias", lambda m: (*_no_bias(m), _seed(m), 0, 0.1), True),
    ]  # fmt: skip


def _no_bias(m: Maker) -> tuple[Tensor, None, Tensor]:
    return m.normal(8192, 2048), None, m.normal(8192, 2048)


def backward_cases() -> list[Case]:
    """For ``titan::bias_dropout_residual_backward``."""

    def case(label: str, make: Any, large: bool = False, bound: float = 1.02, dx: bool = True) -> Case:
        def build(m: Maker) -> tuple[Any, ...]:
            dy, bias, *rest = make(m)
            return dy, bias, *rest, None, [dx, bias is not None]

        return _case(label, build, large, bound)

    def full(m: Maker, rows: int, columns: int) -> tuple[Any, ...]:
        return m.normal(rows, columns), m.normal(columns), _seed(m), 0, 0.1

    return [
        *(case(f"{r}x{n}", lambda m, r=r, n=n: full(m, r, n)) for r, n in _SHAPES),
        case("no bias", lambda m: (m.normal(9, 5001), None, _seed(m), 0, 0.3)),
        case("bias only", lambda m: full(m, 90, 41), dx=False),
        case("p 0", lambda m: (m.normal(9, 40), m.normal(40), None, 0, 0.0)),
        case("p 1", lambda m: (m.normal(9, 40), m.normal(40), None, 0, 1.0)),
        case("odd offset", lambda m: (m.normal(90, 41), m.normal(41), _seed(m), 7, 0.25)),
        case("fp32 bias", lambda m: (m.normal(9, 132), m.normal(132, dtype=torch.float32), _seed(m), 0, 0.1)),
        case("many rows", lambda m: (m.normal(3000, 33), m.normal(33), _seed(m), 0, 0.1)),
        case("strided", lambda m: (m.normal(96, 6).t(), m.normal(96), _seed(m), 0, 0.1)),
        *(case(f"{r}x{n}", lambda m, r=r, n=n: full(m, r, n), True) for r, n in _REALISTIC),
        *(case(f"{r}x{n}", lambda m, r=r, n=n: full(m, r, n), True, 1.15) for r, n in _ODD),
        case("8192x2048 no bias", lambda m: (m.normal(8192, 2048), None, _seed(m), 0, 0.1), True),
    ]
