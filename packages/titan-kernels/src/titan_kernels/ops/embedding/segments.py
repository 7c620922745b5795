"""The positions of each row of the table, found without waiting for the device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["TILE", "Segments"]

# Positions that are summed in one go: longer segments are cut at its multiples.
TILE = 128


@dataclass(frozen=True)
class Segments:
    """Positions sorted by index, in their order where indices are equal.

    Attributes:
        sorted: (N), the indices in order, int64.
        order: (N), the position of each, int64.
        starts: (V + 1), row ``v`` owns the sorted positions ``starts[v]`` to ``starts[v + 1]``, int32.
    """

    sorted: Tensor
    order: Tensor
    starts: Tensor

    @classmethod
    def of(cls, indices: Tensor, rows: int) -> Segments:
        """Segments of a table with so many rows; indices out of range are in none."""
        ordered, order = torch.sort(indices.flatten(), stable=True)
        edges = torch.arange(rows + 1, device=indices.device)
        return cls(ordered, order, torch.searchsorted(ordered, edges, out_int32=True))

    @property
    def tiles(self) -> int:
        """Tiles of positions."""
        return -(-self.sorted.numel() // TILE)

    def new_pieces(self, columns: int) -> Tensor:
        """Memory for the sums of the at most two pieces of long segments in each tile."""
        shape = (self.tiles, 2, columns)
        return torch.empty(shape, dtype=torch.float32, device=self.sorted.device)
