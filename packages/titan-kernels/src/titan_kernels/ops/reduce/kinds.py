"""What a reduction of each kind is made of, for all implementations of this room."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["KINDS", "Kind", "divisor"]


@dataclass(frozen=True)
class Kind:
    """A reduction as the kernels see it.

    Args:
        accumulator: ``total``, ``largest`` or ``moments``: the part of the kernel's name.
        transform: What becomes of an element first: 0 nothing, 1 its square, 2 its absolute value.
        root: Whether the result is the accumulator's square root.
        empty: Whether there is a result of no elements.
    """

    accumulator: str
    transform: int = 0
    root: bool = False
    empty: bool = True


KINDS = {
    "sum": Kind("total"),
    "mean": Kind("total"),
    "amax": Kind("largest", empty=False),
    "norm": Kind("total", transform=1, root=True),
    "inf_norm": Kind("largest", transform=2, empty=False),
    "var": Kind("moments"),
}


def divisor(kind: str, count: int, correction: float) -> float:
    """What the accumulator of ``count`` elements is divided by."""
    if kind == "var":
        return max(0.0, count - correction)
    return float(count) if kind == "mean" else 1.0
