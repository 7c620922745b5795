"""Arguments for tests, counters and benchmarks of this room."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from titan_kernels.cases import Case, Maker

__all__ = ["backward_cases", "forward_cases", "relu2_backward_cases", "relu2_cases"]

_KINDS = ("silu", "gelu", "gelu_tanh")
# rows, columns of one half
_SHAPES = ((3, 768), (5, 61), (7, 1), (2, 2050), (0, 64), (3, 0))
_REALISTIC = ((8192, 2048), (4096, 11008), (16384, 768))
_ODD = (4096, 2049)


def _pair(m: Maker, rows: int, columns: int, scale: float = 3.0) -> tuple[Tensor, Tensor]:
    """Gates wide enough to reach the flat ends of the activations."""
    return m.normal(rows, columns, scale=scale), m.normal(rows, columns)


def _packed(m: Maker, rows: int, columns: int) -> tuple[Tensor, None]:
    return m.normal(rows, 2 * columns, scale=3.0), None


def _slices(m: Maker, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    """Halves of one tensor, passed as two views."""
    gate, up = m.normal(rows, 2 * columns, scale=3.0).chunk(2, dim=-1)
    return gate, up


def _unaligned(m: Maker, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    """Dense tensors that start at different distances from a vector boundary."""
    gate, up = (m.normal(rows * columns + start)[start:].view(rows, columns) for start in (1, 2))
    return gate, up


def _shifted(m: Maker, rows: int, columns: int) -> tuple[Tensor, ...]:
    """Row strides that are no multiple of a vector, and contiguous ones."""
    return m.normal(rows, columns + 1)[:, 1:], m.normal(rows, columns)


def _arguments(backward: bool) -> list[Case]:
    def case(
        label: str, make: Any, kind: str = "silu", large: bool = False, wanted: str = "dgate, dup"
    ) -> Case:
        def build(m: Maker) -> tuple[Any, ...]:
            gate, up = make(m)
            shape = (*gate.shape[:-1], gate.shape[-1] // 2) if up is None else gate.shape
            mask = ["dgate" in wanted, up is not None and "dup" in wanted]
            return (m.normal(*shape), gate, up, kind, mask) if backward else (gate, up, kind)

        return Case(label, build, large)

    return [
        *(case(f"{kind} {r}x{n}", lambda m, r=r, n=n: _pair(m, r, n), kind)
          for kind in _KINDS for r, n in _SHAPES),
        *(case(f"{kind} large values", lambda m: _pair(m, 3, 80, scale=1e4), kind) for kind in _KINDS),
        *(case(f"packed {r}x{n}", lambda m, r=r, n=n: _packed(m, r, n)) for r, n in _SHAPES),
        case("halves as views", lambda m: _slices(m, 5, 96)),
        case("3 dims", lambda m: (m.normal(2, 3, 80), m.normal(2, 3, 80))),
        case("1 dim", lambda m: (m.normal(80), m.normal(80))),
        case("strided", lambda m: (m.normal(96, 6).t(), m.normal(6, 96))),
        case("unaligned", lambda m: _unaligned(m, 4, 97)),
        case("shifted rows", lambda m: _shifted(m, 4, 97)),
        *(case(f"{wanted} only", lambda m: _shifted(m, 4, 97), wanted=wanted)
          for wanted in ("dgate", "dup") if backward),
        *(case(f"{r}x{n}", lambda m, r=r, n=n: _pair(m, r, n), large=True) for r, n in (*_REALISTIC, _ODD)),
        *(case(f"packed {r}x{n}", lambda m, r=r, n=n: _packed(m, r, n), large=True) for r, n in _REALISTIC),
    ]  # fmt: skip


def forward_cases() -> list[Case]:
    """For ``titan::glu``."""
    return _arguments(backward=False)


def backward_cases() -> list[Case]:
    """For ``titan::glu_backward``."""
    return _arguments(backward=True)


def _relu2_arguments(tensors: int) -> list[Case]:
    def build(*shape: int) -> Any:
        return lambda m: tuple(m.normal(*shape, scale=3.0) for _ in range(tensors))

    return [
        *(Case(f"{r}x{n}", build(r, n)) for r, n in _SHAPES),
        Case("no dims", build()),
        Case("strided", lambda m: tuple(m.normal(9, 7).t() for _ in range(tensors))),
        Case("unaligned", lambda m: tuple(m.normal(98 + i)[1 + i :] for i in range(tensors))),
        *(Case(f"{r}x{n}", build(r, n), realistic=True) for r, n in (*_REALISTIC, _ODD)),
    ]


def relu2_cases() -> list[Case]:
    """For ``titan::relu2``."""
    return _relu2_arguments(1)


def relu2_backward_cases() -> list[Case]:
    """For ``titan::relu2_backward``."""
    return _relu2_arguments(2)
