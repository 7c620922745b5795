"""The documents of the virtual shards of a stream.

A stream's parts are divided among L lanes.  A lane chains its parts, epoch after epoch, and deals the
documents to its V / L shards in turn.  Documents are read in blocks; shuffling permutes the documents
of a block, so a position in the stream is a block's start and a number, and nothing gets lost on
resume as it would with a shuffle buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from titan_pretrain.data.documents import Document
from titan_pretrain.data.order import permute_list
from titan_pretrain.data.packing import Cursor
from titan_pretrain.data.plan import Plan, legal_degrees
from titan_pretrain.data.source import Json, PartReader, StreamSource, is_blank
from titan_pretrain.errors import DataError

__all__ = ["StreamDocuments"]

_SHUFFLED_BLOCK = 512
_PLAIN_BLOCK = 32
_PART_BITS = 40


class Block(NamedTuple):
    """Consecutive documents of a lane.

    Attributes:
        start: Position of the first one in the lane, over all epochs.
        texts: The documents, shuffled.
        snapshot: From where the block can be read again.
    """

    start: int
    texts: list[str]
    snapshot: dict[str, Json]


class StreamDocuments:
    """Deals a stream to the shards of one process.

    Args:
        source: The stream.
        plan: The plan.
        cursors: Where each shard of this process goes on.
    """

    def __init__(self, source: StreamSource, plan: Plan, cursors: Mapping[int, Cursor]) -> None:
        self._num_lanes = _num_lanes(source, plan)
        self._per_lane = plan.num_shards // self._num_lanes
        of_lane: dict[int, dict[int, Cursor]] = {}
        for shard, cursor in cursors.items():
            lane, turn = shard % self._num_lanes, shard // self._num_lanes
            of_lane.setdefault(lane, {})[turn] = cursor
        self._lanes = {
            lane: _Lane(_LaneReader(source, plan, lane, self._num_lanes), self._per_lane, turns)
            for lane, turns in of_lane.items()
        }

    def fetch(self, shard: int, ordinal: int) -> Document:
        """Return the shard's document number ``ordinal``.

        Raises:
            DataError: The stream can't be read, or has no documents.
        """
        lane, turn = shard % self._num_lanes, shard // self._num_lanes
        text, snapshot = self._lanes[lane].take(ordinal * self._per_lane + turn)
        return Document(ordinal, text, snapshot)


def _num_lanes(source: StreamSource, plan: Plan) -> int:
    """Return the largest number of lanes that leaves no lane without a part.

    Validation reads few documents, and opens no more parts than it must.
    """
    if plan.part == "validation":
        return 1
    return max(lanes for lanes in legal_degrees(plan.num_shards) if lanes <= source.num_parts)


class _Lane:
    """A lane as the shards of one process see it: each takes its own documents, at its own pace."""

    def __init__(self, reader: _LaneReader, per_lane: int, cursors: Mapping[int, Cursor]) -> None:
        self._reader = reader
        self._per_lane = per_lane
        self._starts = {turn: cursor.ordinal * per_lane + turn for turn, cursor in cursors.items()}
        snapshots = [cursor.snapshot for cursor in cursors.values()]
        if None not in snapshots:
            reader.seek(min(snapshots, key=lambda snapshot: int(snapshot["position"])))
        self._waiting: dict[int, tuple[str, Json]] = {}  # read for one shard while another was served

    def take(self, position: int) -> tuple[str, Json]:
        """Return the document at a position of the lane, and its block's snapshot."""
        while position not in self._waiting:
            if position < self._reader.position:
                raise DataError("the checkpoint's data state doesn't fit together: it is damaged")
            self._sort_in(self._reader.next_block())
        return self._waiting.pop(position)

    def _sort_in(self, block: Block) -> None:
        for position, text in enumerate(block.texts, block.start):
            start = self._starts.get(position % self._per_lane)
            if start is not None and position >= start:
                self._waiting[position] = (text, block.snapshot)


class _LaneReader:
    """Reads a lane block by block, from the start or from a snapshot.

    Attributes:
        position: Documents of the lane that are read, over all epochs.
    """

    def __init__(self, source: StreamSource, plan: Plan, lane: int, num_lanes: int) -> None:
        self._source = source
        self._plan = plan
        self._lane = lane
        self._num_lanes = num_lanes
        self._reader: PartReader | None = None
        self.position = 0
        self._epoch = 0
        self._block = 0  # within the epoch
        self._turn = 0  # which of the epoch's parts
        self._record = 0  # within the part

    def seek(self, snapshot: Mapping[str, Json]) -> None:
        """Go to the start of a block."""
        self.position = snapshot["position"]
        self._epoch = snapshot["epoch"]
        self._block = snapshot["block"]
        self._turn = snapshot["turn"]
        self._record = snapshot["record"]
        parts = self._parts()
        if self._turn < len(parts) and self._record:
            state = snapshot["state"]
            self._reader = self._source.open(parts[self._turn], state)
            if state is None:
                self._reader.skip(self._record)

    def _snapshot(self) -> dict[str, Json]:
        return {
            "position": self.position,
            "epoch": self._epoch,
            "block": self._block,
            "turn": self._turn,
            "record": self._record,
            "state": self._reader.state() if self._reader and self._record else None,
        }

    def next_block(self) -> Block:
        """Read the next block; going round the lane's parts for ever.

        Raises:
            DataError: All parts of the stream are without documents.
        """
        empty_epochs = 0
        while empty_epochs < self._num_lanes:
            snapshot = self._snapshot()
            texts = list(islice(self._rest_of_epoch(), self._block_size))
            if texts:
                block = Block(self.position, self._shuffled(texts), snapshot)
                self.position += len(texts)
                self._block += 1
                return block
            empty_epochs += self._block == 0
            self._epoch, self._block, self._turn, self._record = self._epoch + 1, 0, 0, 0
        raise DataError(self._nothing_to_read())

    @property
    def _block_size(self) -> int:
        return _SHUFFLED_BLOCK if self._plan.shuffle else _PLAIN_BLOCK

    def _shuffled(self, texts: list[str]) -> list[str]:
        if not self._plan.shuffle:
            return texts
        order = permute_list(len(texts), "block", self._plan.seed, self._lane, self._epoch, self._block)
        return [texts[i] for i in order]

    def _rest_of_epoch(self) -> Iterator[str]:
        parts = self._parts()
        while self._turn < len(parts):
            part = parts[self._turn]
            if self._reader is None:
                self._reader = self._source.open(part)
            for text in self._reader:
                document = part << _PART_BITS | self._record
                self._record += 1
                if not is_blank(text) and self._plan.keeps(document):
                    yield text
            self._reader = None
            self._turn, self._record = self._turn + 1, 0

    def _parts(self) -> list[int]:
        """Return this epoch's parts in order.

        The lanes swap their parts from epoch to epoch: a lane whose parts have no documents for it
        (empty files, all held out) gets others, and the shards see all of the dataset in time.
        """
        first = (self._lane + self._epoch) % self._num_lanes
        parts = list(range(first, self._source.num_parts, self._num_lanes))
        if not self._plan.shuffle:
            return parts
        order = permute_list(len(parts), "parts", self._plan.seed, self._lane, self._epoch)
        return [parts[i] for i in order]

    def _nothing_to_read(self) -> str:
        holdout = self._plan.holdout
        share = f" for {self._plan.part} with validation.holdout ({holdout:g})" if holdout else ""
        return (
            f"data.dataset ({self._source.name}) has no documents with text{share} in a whole epoch; "
            "a function must return a fresh iterable at each call"
        )
