"""Lists of tensors as launches: so many tensors each, in chunks of fixed size."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torch import Tensor

from titan_kernels.launch import Packed

__all__ = ["Batch", "batches", "in_memory_order"]

_CHUNK = 2**15  # elements, as in kernel.cu


@dataclass(frozen=True)
class Batch:
    """The tensors of one launch.

    Args:
        places: Their places in the list.
        counts: Elements of each, none of them 0.
        capacity: The most tensors of a launch.
        before: Chunks of earlier batches.
    """

    places: list[int]
    counts: list[int]
    capacity: int
    before: int

    @property
    def first(self) -> list[int]:
        """The number of each tensor's first chunk, and the number of all chunks."""
        return list(itertools.accumulate((-(-count // _CHUNK) for count in self.counts), initial=0))

    @property
    def chunks(self) -> int:
        """Blocks of the launch."""
        return self.first[-1]

    def packed_counts(self) -> Packed:
        """The kernel's ``counts``."""
        return Packed(self.counts, self.capacity)

    def packed_first(self) -> Packed:
        """The kernel's ``first``."""
        return Packed(self.first, self.capacity + 1)

    def pick(self, tensors: Sequence[Tensor]) -> Packed:
        """The batch's part of a list of tensors."""
        return Packed([tensors[place] for place in self.places], self.capacity)


def batches(tensors: Sequence[Tensor], kinds: Sequence[object], capacity: int) -> Iterator[Batch]:
    """Tensors of one kind go together, in the order of the list; empty ones are left out."""
    before = 0
    for kind in dict.fromkeys(kinds):
        places = [i for i, each in enumerate(kinds) if each == kind and tensors[i].numel()]
        for begin in range(0, len(places), capacity):
            some = places[begin : begin + capacity]
            batch = Batch(some, [tensors[i].numel() for i in some], capacity, before)
            before += batch.chunks
            yield batch


def in_memory_order(x: Tensor) -> Tensor | None:
    """A contiguous view of all elements, with permuted dimensions; nothing if there are gaps or overlaps."""
    ordered = x.permute(sorted(range(x.dim()), key=x.stride, reverse=True))
    return ordered if ordered.is_contiguous() else None
