"""Arguments for tests, counters and benchmarks of this room."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from titan_kernels.cases import Case, Maker
from titan_kernels.ops.cross_entropy import reference

__all__ = ["CAPPED", "backward_cases", "forward_cases", "inplace_cases", "partial_cases"]

_IGNORE = -100
_PLAIN = (0.0, 0.0, 0.0)  # label smoothing, z-loss, soft-cap
_SHAPES = ((3, 1000), (5, 64), (2, 5003), (7, 1), (4, 3), (2, 9000), (0, 64))
# Vocabularies of Llama 2, GPT-2 (rows at odd addresses), Llama 3 and Qwen 2.
_REALISTIC = ((2048, 32000), (1024, 50257), (512, 128256), (512, 151936))
_BOUNDS = {50257: 1.05}
_OPTIONS = {
    "label smoothing": (0.1, 0.0, 0.0),
    "z-loss": (0.0, 1e-2, 0.0),
    "soft-cap": (0.0, 0.0, 5.0),
    "all options": (0.2, 1e-2, 5.0),
}
CAPPED = ("soft-cap", "all options")


def _target(m: Maker, rows: int, classes: int) -> Tensor:
    """Every fifth row is ignored, except in realistic shapes, whose traffic is counted."""
    target = m.integers(rows, high=classes)
    if rows < 500:
        target[1::5] = _IGNORE
    return target


def _logits(m: Maker, rows: int, classes: int) -> Tensor:
    return m.normal(rows, classes, scale=3.0)


def _inputs(m: Maker, rows: int, classes: int) -> tuple[Tensor, Tensor]:
    return _logits(m, rows, classes), _target(m, rows, classes)


def _infinite(m: Maker) -> tuple[Tensor, Tensor]:
    logits, target = _inputs(m, 4, 96)
    logits[:, 5:90] = -torch.inf
    return logits, target % 5


_STRANGE: dict[str, Callable[[Maker], tuple[Tensor, Tensor]]] = {
    "3 dims": lambda m: (m.normal(2, 3, 80), _target(m, 6, 80).view(2, 3)),
    "1 dim": lambda m: (m.normal(9), m.integers(1, high=9)[0]),
    "strided": lambda m: (m.normal(96, 6).t(), _target(m, 12, 96)[::2]),
    "unaligned": lambda m: (m.normal(4 * 97 + 1)[1:].view(4, 97), _target(m, 4, 97)),
    "large logits": lambda m: (m.normal(4, 256, scale=1e3) + 1e4, _target(m, 4, 256)),
    "infinite logits": _infinite,
}
_Options = tuple[float, float, float]


def _cases(arguments: Callable[[Maker, Tensor, Tensor, _Options], tuple[Any, ...]]) -> list[Case]:
    """A case for all shapes, strange inputs and options; ``arguments`` builds the operator's."""

    def case(
        label: str, make: Callable[[Maker], tuple[Tensor, Tensor]], options: _Options, **how: Any
    ) -> Case:
        return Case(label, lambda m: arguments(m, *make(m), options), **how)

    shapes = [(shape, False) for shape in _SHAPES] + [(shape, True) for shape in _REALISTIC]
    return [
        *(
            case(
                f"{r}x{n}",
                functools.partial(_inputs, rows=r, classes=n),
                _PLAIN,
                realistic=large,
                sector_bound=_BOUNDS.get(n, 1.02),
            )
            for (r, n), large in shapes
        ),
        *(case(name, make, _PLAIN) for name, make in _STRANGE.items()),
        *(
            case(name, functools.partial(_inputs, rows=6, classes=333), options)
            for name, options in _OPTIONS.items()
        ),
    ]


def forward_cases() -> list[Case]:
    """For ``titan::cross_entropy``."""
    return _cases(lambda m, logits, target, options: (logits, target, _IGNORE, *options, False))


def partial_cases() -> list[Case]:
    """For ``titan::cross_entropy_partial``: shards that hold some of the targets."""
    return _cases(lambda m, logits, target, options: _partial(logits, target, options[2]))


def _partial(logits: Tensor, target: Tensor, softcap: float) -> tuple[Any, ...]:
    first = logits.shape[-1] // 2
    return logits, target, first, _IGNORE, softcap


def _backward(m: Maker, logits: Tensor, target: Tensor, options: _Options) -> tuple[Any, ...]:
    _, lse = m.derived(reference.forward, logits, target, _IGNORE, *options, False)
    grad = m.uniform(*target.shape, low=-1.0, high=1.0, dtype=lse.dtype)
    return grad, logits, target, lse, 0, logits.shape[-1], _IGNORE, *options


def _shard(m: Maker) -> tuple[Any, ...]:
    logits, target = _inputs(m, 6, 400)
    grad, _, _, lse, *_ = _backward(m, logits, target, (0.1, 1e-2, 0.0))
    return grad, logits[:, 100:231].contiguous(), target, lse, 100, 400, _IGNORE, 0.1, 1e-2, 0.0


def backward_cases() -> list[Case]:
    """For ``titan::cross_entropy_backward``."""
    return [*_cases(_backward), Case("shard", _shard)]


def inplace_cases() -> list[Case]:
    """For ``titan::cross_entropy_backward_inplace``, which needs contiguous logits."""
    return [case for case in backward_cases() if case.label != "strided"]
