"""The sequences one worker of one rank produces, as an iterable dataset."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count, islice, repeat

from torch.utils.data import IterableDataset, get_worker_info

from titan_pretrain.data.documents import Documents, IndexedDocuments
from titan_pretrain.data.lanes import StreamDocuments
from titan_pretrain.data.packing import Cursor, ShardPacker, TokenSequence
from titan_pretrain.data.plan import Plan
from titan_pretrain.data.source import DocumentSource, IndexedSource, StreamSource
from titan_pretrain.errors import DataError, PretrainError
from titan_pretrain.tokenizer import Tokenizer

__all__ = ["Failure", "SequenceDataset", "Share"]


@dataclass(frozen=True)
class Failure:
    """An error on its way from a worker; PyTorch's own transport would turn it into a traceback."""

    error: PretrainError
    details: str


@dataclass(frozen=True)
class Share:
    """The sequences a rank or worker takes: ``first``, ``first + step``, ``first + 2 * step`` and so on.

    Attributes:
        num_shards: Virtual shards V; sequence g is number ``g // V`` of shard ``g % V``.
        consumed: Sequences that all ranks together took before these.
        first: Global index of the next sequence.
        step: Distance of two sequences: the number of ranks (times workers).
    """

    num_shards: int
    consumed: int
    first: int
    step: int

    @classmethod
    def of_rank(cls, num_shards: int, consumed: int, rank: int, ranks: int) -> Share:
        """Return a rank's share of the sequences from number ``consumed`` on."""
        return cls(num_shards, consumed, consumed + rank, ranks)

    def of_worker(self, worker: int, workers: int) -> Share:
        """Return the part of one worker: every ``workers``-th sequence."""
        first = self.first + worker * self.step
        return replace(self, first=first, step=self.step * workers)

    def shards(self) -> list[int]:
        """Return the virtual shards these sequences come from, in order of use."""
        shards = ((self.first + i * self.step) % self.num_shards for i in range(self.num_shards))
        return list(dict.fromkeys(shards))

    def number(self, index: int) -> int:
        """Return which sequence of its shard a global index is."""
        return index // self.num_shards

    def numbers_consumed(self, shard: int) -> int:
        """Return how many sequences of a shard are among the consumed ones."""
        return -((shard - self.consumed) // self.num_shards)


class SequenceDataset(IterableDataset[list[TokenSequence | Failure]]):
    """Reads, tokenizes and packs; endless.

    Args:
        source: The dataset.
        tokenizer: The tokenizer.
        plan: How documents are dealt to virtual shards.
        seq_len: Tokens per sequence, T.
        share: The rank's sequences.
        cursors: Where each of the rank's shards goes on; a missing one starts at its beginning.
        chunk: Sequences that a worker hands over at once.
    """

    def __init__(
        self,
        source: DocumentSource,
        tokenizer: Tokenizer,
        plan: Plan,
        seq_len: int,
        share: Share,
        cursors: Mapping[int, Cursor],
        chunk: int = 1,
    ) -> None:
        self.source = source
        self._tokenizer = tokenizer
        self._plan = plan
        self._seq_len = seq_len
        self._share = share
        self._cursors = dict(cursors)
        self._chunk = chunk

    def __iter__(self) -> Iterator[list[TokenSequence | Failure]]:
        """Yield chunks of this worker's sequences, and after an error only the :class:`Failure`."""
        items = self._items()
        while True:
            yield list(islice(items, self._chunk))

    def _items(self) -> Iterator[TokenSequence | Failure]:
        info = get_worker_info()
        share = self._share.of_worker(info.id, info.num_workers) if info else self._share
        try:
            yield from self._produce(share)
        except (Exception, SystemExit) as error:
            # A worker that ended could not be told from one that was killed.
            yield from repeat(self._failure(error))

    def _failure(self, error: BaseException) -> Failure:
        if not isinstance(error, PretrainError):
            reason = f"{type(error).__name__}: {error}"
            error = DataError(f"reading data.dataset ({self.source.name}) failed: {reason}")
        return Failure(error, traceback.format_exc())

    def _produce(self, share: Share) -> Iterator[TokenSequence]:
        packers = self._packers(share.shards())
        given = {shard: share.numbers_consumed(shard) for shard in packers}
        for index in count(share.first, share.step):
            shard = index % share.num_shards
            while given[shard] < share.number(index):  # these are another rank's that shares the shard
                next(packers[shard])
                given[shard] += 1
            given[shard] += 1
            yield next(packers[shard])

    def _packers(self, shards: list[int]) -> dict[int, ShardPacker]:
        cursors = {shard: self._cursors.get(shard, Cursor()) for shard in shards}
        documents = self._documents(cursors)
        return {
            shard: ShardPacker(documents, self._tokenizer, self._seq_len, shard, cursor)
            for shard, cursor in cursors.items()
        }

    def _documents(self, cursors: Mapping[int, Cursor]) -> Documents:
        if isinstance(self.source, StreamSource):
            return StreamDocuments(self.source, self._plan, cursors)
        if isinstance(self.source, IndexedSource):
            return IndexedDocuments(self.source, self._plan)
        raise TypeError(f"{type(self.source).__name__} is neither an IndexedSource nor a StreamSource")
