"""Any tensor and any dimensions as one of two shapes that kernels know, without a copy where possible."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Collapsed", "collapse", "kept_shape", "reduced_size"]


def reduced_size(x: Tensor, dims: Sequence[int]) -> int:
    """Elements of ``x`` per result."""
    return math.prod(x.shape[d] for d in dims)


def kept_shape(x: Tensor, dims: Sequence[int], keepdim: bool) -> list[int]:
    """The shape of the result."""
    sizes = [1 if d in dims else size for d, size in enumerate(x.shape)]
    return sizes if keepdim else [size for d, size in enumerate(sizes) if d not in dims]


@dataclass(frozen=True)
class Collapsed:
    """A contiguous tensor (lead, outer, reduced, inner) of which lead and reduced are reduced.

    One of lead and inner is 1.

    Args:
        x: The elements; (lead, outer, reduced, inner).
        order: The dimensions of the original tensor in the order in which memory has them.
    """

    x: Tensor
    order: tuple[int, ...]

    @property
    def outputs(self) -> int:
        """Results of the reduction."""
        return self.x.shape[1] * self.x.shape[3]

    def restore(self, result: Tensor, like: Tensor, dims: Sequence[int], keepdim: bool) -> Tensor:
        """The results, which lie as (outer, inner), in the order of the dimensions of ``like``."""
        kept = [d for d in self.order if d not in dims]
        in_memory = result.view([like.shape[d] for d in kept])
        back = sorted(range(len(kept)), key=kept.__getitem__)
        return in_memory.permute(back).contiguous().view(kept_shape(like, dims, keepdim))


def collapse(x: Tensor, dims: Sequence[int]) -> Collapsed:
    """``x``, reduced over ``dims``, in the order of its memory; starts at a multiple of 16 bytes.

    A copy is needed where elements are not dense in memory, or reduced and kept dimensions alternate more
    than (kept, reduced, kept) or (reduced, kept, reduced).
    """
    order = sorted(range(x.dim()), key=x.stride, reverse=True)
    dense = x.permute(order)
    if not dense.is_contiguous():
        order, dense = list(range(x.dim())), x.contiguous()
    shape = _shape(dense, [d in dims for d in order])
    if shape is None:
        order = [d for d in range(x.dim()) if d not in dims] + list(dims)
        dense = x.permute(order).contiguous()
        shape = 1, dense.numel() // reduced_size(x, dims), reduced_size(x, dims), 1
    dense = dense.clone(memory_format=torch.contiguous_format) if dense.data_ptr() % 16 else dense
    return Collapsed(dense.view(shape), tuple(order))


def _shape(x: Tensor, reduced: list[bool]) -> tuple[int, int, int, int] | None:
    """(lead, outer, reduced, inner), or nothing if the runs of dimensions are too many."""
    sizes = ((r, size) for r, size in zip(reduced, x.shape, strict=True) if size != 1)
    runs = [
        (is_reduced, math.prod(size for _, size in run))
        for is_reduced, run in itertools.groupby(sizes, key=lambda each: each[0])
    ]
    lead = runs.pop(0)[1] if len(runs) == 3 and runs[0][0] else 1
    outer = runs.pop(0)[1] if runs and not runs[0][0] and len(runs) > 1 else 1
    middle = runs.pop(0)[1] if runs and runs[0][0] else 1
    inner = runs.pop(0)[1] if runs and not runs[0][0] else 1
    return None if runs else (lead, outer, middle, inner)
