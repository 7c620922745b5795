"""How a dataset is dealt out: the facts every rank and worker must agree on."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from titan_pretrain.data.order import is_held_out
from titan_pretrain.data.source import DocumentSource, IndexedSource
from titan_pretrain.errors import DataError, UsageError

__all__ = [
    "DEFAULT_SHARDS",
    "Part",
    "Plan",
    "check_degree",
    "check_not_empty",
    "legal_degrees",
    "shards_for_training",
]

Part = Literal["train", "validation"]

DEFAULT_SHARDS = 48
"""Virtual shards of a run, unless its data-parallel degree asks for more: 48 has ten divisors."""


@dataclass(frozen=True)
class Plan:
    """What decides the order of a run's documents, besides the dataset itself.

    Attributes:
        num_shards: Virtual shards V; sequence g of the run comes from shard ``g % V``.
        seed: Seed of the run.
        shuffle: Whether documents are shuffled.
        holdout: Share of documents that only validation sees.
        part: Which share this loader reads.
    """

    num_shards: int
    seed: int
    shuffle: bool
    holdout: float = 0.0
    part: Part = "train"

    def keeps(self, document: int) -> bool:
        """Whether this loader reads the document with this id."""
        if not self.holdout:
            return True
        return is_held_out(document, self.holdout) == (self.part == "validation")

    def kept(self, source: IndexedSource) -> Iterator[int]:
        """Yield the indices of the documents this loader reads."""
        return (index for index in range(len(source)) if self.keeps(index))


def shards_for_training(dp_size: int) -> int:
    """Return the default number of virtual shards: a multiple of 48 that ``dp_size`` divides."""
    return math.lcm(DEFAULT_SHARDS, dp_size)


def check_not_empty(source: DocumentSource, plan: Plan) -> None:
    """Check that at least one document is left for this loader.

    Raises:
        DataError: The dataset is empty.
        UsageError: The hold-out takes every document.
    """
    if not isinstance(source, IndexedSource):
        return  # found out while reading
    if not len(source):
        raise DataError(f"data.dataset ({source.name}) has no documents")
    if not any(plan.keeps(index) for index in range(len(source))):
        raise UsageError(
            f"validation.holdout ({plan.holdout:g}) takes all of the {len(source)} documents of "
            f"data.dataset ({source.name}); lower it, or give validation.data a dataset of its own"
        )


def legal_degrees(num_shards: int) -> list[int]:
    """Return the data-parallel degrees that divide ``num_shards``."""
    return [degree for degree in range(1, num_shards + 1) if num_shards % degree == 0]


def check_degree(num_shards: int, dp_size: int) -> None:
    """Check that every virtual shard belongs to one rank.

    Raises:
        UsageError: ``dp_size`` doesn't divide ``num_shards``.
    """
    if num_shards % dp_size:
        raise UsageError(
            f"{dp_size} data-parallel ranks can't share the run's {num_shards} virtual data shards: "
            f"use one of {', '.join(map(str, legal_degrees(num_shards)))} ranks"
        )
