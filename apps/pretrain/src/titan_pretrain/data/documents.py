"""The documents of the virtual shards of an indexed source, in order and for ever."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import count
from typing import NamedTuple, Protocol

from titan_pretrain.data.order import Order, epoch_order
from titan_pretrain.data.plan import Plan
from titan_pretrain.data.source import IndexedSource, Json, is_blank
from titan_pretrain.errors import DataError

__all__ = ["Document", "Documents", "IndexedDocuments"]


class Document(NamedTuple):
    """A document of a shard.

    Attributes:
        ordinal: Its number among the documents dealt to the shard, over all epochs.
        text: Its text; never blank.
        snapshot: For streams, where the source stood shortly before it.
    """

    ordinal: int
    text: str
    snapshot: Json = None


class Documents(Protocol):
    """The documents dealt to some virtual shards."""

    def fetch(self, shard: int, ordinal: int) -> Document:
        """Return the shard's first document at or after ``ordinal``."""
        ...


class IndexedDocuments:
    """Deals an indexed source: position ``p = shard + ordinal * V`` of the endless run of epochs.

    An epoch takes N' positions, the next number from N on that has no divisor in common with V;
    the few positions beyond N are empty.  So every shard meets every document in the course of time,
    even unshuffled: a shard can't be left with blank or held-out documents only.
    """

    def __init__(self, source: IndexedSource, plan: Plan) -> None:
        self._source = source
        self._plan = plan
        self._size = len(source)
        self._epoch_length = next(n for n in count(self._size) if math.gcd(n, plan.num_shards) == 1)
        self._order = lru_cache(maxsize=4)(self._epoch_order)
        self._has_text = False

    def fetch(self, shard: int, ordinal: int) -> Document:
        """Return the shard's first document at or after ``ordinal``.

        Raises:
            DataError: A document can't be read, or every document is blank.
        """
        candidate = ordinal
        while is_blank(text := self._text(shard, candidate)):
            candidate += 1
            if candidate - ordinal > self._epoch_length and not self._has_text:
                self._check_has_text()
        return Document(candidate, text)

    def _text(self, shard: int, ordinal: int) -> str:
        epoch, position = divmod(shard + ordinal * self._plan.num_shards, self._epoch_length)
        if position >= self._size:
            return ""
        index = self._order(epoch)(position)
        return self._source[index] if self._plan.keeps(index) else ""

    def _epoch_order(self, epoch: int) -> Order:
        plan = self._plan
        return epoch_order(self._size, self._source.blocks, seed=plan.seed, epoch=epoch, shuffle=plan.shuffle)

    def _check_has_text(self) -> None:
        if all(is_blank(self._source[index]) for index in self._plan.kept(self._source)):
            raise DataError(f"data.dataset ({self._source.name}): every document is empty")
        self._has_text = True
