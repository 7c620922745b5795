"""Streams: dealing, shuffling, seeking, hold-out."""

from __future__ import annotations

import collections
import itertools

import pytest

from titan_pretrain.data.lanes import StreamDocuments
from titan_pretrain.data.packing import Cursor
from titan_pretrain.data.plan import Plan
from titan_pretrain.data.source import PartReader, StreamSource
from titan_pretrain.errors import DataError


class Reader(PartReader):
    def __init__(self, source, texts, state):
        self.source, self.texts = source, texts
        self.position = state["position"] if state else 0

    def __next__(self):
        if self.position >= len(self.texts):
            raise StopIteration
        self.position += 1
        self.source.read += 1
        return self.texts[self.position - 1]

    def state(self):
        return {"position": self.position} if self.source.seekable else None


class Parts(StreamSource):
    """Parts in memory; counts what is read."""

    def __init__(self, parts, seekable=True):
        self.name, self.parts, self.seekable, self.read = "parts", parts, seekable, 0

    @property
    def num_parts(self):
        return len(self.parts)

    def open(self, part, state=None):
        return Reader(self, self.parts[part], state)

    def identity(self):
        return {"dataset": "parts"}


def parts_of(*sizes):
    return [[f"p{part}d{i}" for i in range(size)] for part, size in enumerate(sizes)]


def first_epoch(documents, num_shards, total, skip=0):
    """Deal to all shards in turn, as equally long documents would be."""
    return [
        documents.fetch(shard, ordinal).text
        for ordinal in range(skip, skip + total // num_shards)
        for shard in range(num_shards)
    ]


def test_one_lane_deals_in_order():
    documents = StreamDocuments(Parts(parts_of(48)), Plan(12, 0, False), dict.fromkeys(range(12), Cursor()))
    assert first_epoch(documents, 12, 48) == parts_of(48)[0]
    assert first_epoch(documents, 12, 48, skip=4) == parts_of(48)[0]  # the second epoch


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("sizes", [(1200,), (600, 600), (300,) * 4, (40,) * 30, (25,) * 48])
def test_every_document_once_per_epoch(sizes, shuffle):
    parts = parts_of(*sizes)
    lanes = max(n for n in (1, 2, 3, 4, 6, 8, 12, 16, 24, 48) if n <= len(parts))
    documents = StreamDocuments(Parts(parts), Plan(48, 0, shuffle), dict.fromkeys(range(48), Cursor()))
    per_lane = [sum(sizes[lane::lanes]) for lane in range(lanes)]
    per_epoch = 48 // lanes
    found = collections.Counter()
    for lane, total in enumerate(per_lane):
        for position in range(total):  # walk through the lane's first epoch
            shard = lane + (position % per_epoch) * lanes
            found[documents.fetch(shard, position // per_epoch).text] += 1
    assert found == collections.Counter(itertools.chain(*parts))


def test_blocks_are_shuffled_anew_in_every_epoch():
    documents = StreamDocuments(Parts(parts_of(1024)), Plan(1, 0, True), {0: Cursor()})
    texts = [documents.fetch(0, i).text for i in range(2048)]
    plain = parts_of(1024)[0]
    assert texts[:1024] != plain
    assert sorted(texts[:512]) == sorted(plain[:512])  # nothing leaves its block
    assert sorted(texts[1024:]) == sorted(plain)
    assert texts[1024:] != texts[:1024]


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("seekable", [True, False])
@pytest.mark.parametrize("stop", [0, 1, 511, 512, 513, 1699, 1700, 1701, 4000])
def test_snapshot_brings_back_the_rest(stop, seekable, shuffle):
    parts = parts_of(700, 1000)
    plan = Plan(1, 0, shuffle)
    documents = StreamDocuments(Parts(parts, seekable), plan, {0: Cursor()})
    expected = [documents.fetch(0, i) for i in range(5000)]
    resumed = StreamDocuments(Parts(parts, seekable), plan, {0: Cursor(stop, 0, expected[stop].snapshot)})
    assert [resumed.fetch(0, i).text for i in range(stop, 5000)] == [d.text for d in expected[stop:]]


def test_seeking_reads_one_block_only():
    source = Parts(parts_of(100_000))
    documents = StreamDocuments(source, Plan(1, 0, True), {0: Cursor()})
    for i in range(5000):
        document = documents.fetch(0, i)
    again = Parts(source.parts)
    resumed = StreamDocuments(again, Plan(1, 0, True), {0: Cursor(4999, 0, document.snapshot)})
    assert resumed.fetch(0, 4999).text == document.text
    assert again.read <= 512


def test_shards_at_different_paces_share_one_reading():
    source = Parts(parts_of(9600))
    documents = StreamDocuments(source, Plan(48, 0, False), dict.fromkeys(range(48), Cursor()))
    fast = [documents.fetch(5, i).text for i in range(100)]
    slow = [documents.fetch(7, i).text for i in range(100)]
    assert fast == parts_of(9600)[0][5:4800:48]
    assert slow == parts_of(9600)[0][7:4800:48]
    assert source.read < 4900


def test_shards_at_different_snapshots_resume_together():
    parts = parts_of(3000)
    plan = Plan(2, 0, True)
    documents = StreamDocuments(Parts(parts), plan, dict.fromkeys(range(2), Cursor()))
    expected = {
        0: [documents.fetch(0, i) for i in range(2000)],
        1: [documents.fetch(1, i) for i in range(2000)],
    }
    stops = {0: 1300, 1: 20}
    cursors = {shard: Cursor(stop, 0, expected[shard][stop].snapshot) for shard, stop in stops.items()}
    resumed = StreamDocuments(Parts(parts), plan, cursors)
    for shard in (0, 1):
        texts = [resumed.fetch(shard, i).text for i in range(stops[shard], 2000)]
        assert texts == [document.text for document in expected[shard][stops[shard] :]]


def test_a_lane_with_empty_parts_gets_others():
    parts = [[], ["a", "b"], [], ["", " "]]
    documents = StreamDocuments(Parts(parts), Plan(4, 0, False), dict.fromkeys(range(4), Cursor()))
    assert {documents.fetch(shard, i).text for shard in range(4) for i in range(8)} == {"a", "b"}


@pytest.mark.parametrize("holdout", [0.0, 0.2])
def test_nothing_to_read_is_an_error(holdout):
    documents = StreamDocuments(
        Parts([["", "\n"]] * 5), Plan(4, 0, True, holdout), dict.fromkeys(range(4), Cursor())
    )
    with pytest.raises(DataError, match="has no documents with text"):
        documents.fetch(0, 0)


def test_hold_out_is_disjoint_complete_and_the_same_in_every_epoch():
    parts = parts_of(*(30,) * 20)
    training = StreamDocuments(Parts(parts), Plan(4, 0, True, 0.1), dict.fromkeys(range(4), Cursor()))
    plan = Plan(8, 0, True, 0.1, "validation")
    validation = StreamDocuments(Parts(parts), plan, dict.fromkeys(range(8), Cursor()))
    trained = {training.fetch(shard, i).text for shard in range(4) for i in range(1000)}
    validated = {validation.fetch(shard, i).text for shard in range(8) for i in range(50)}
    assert not trained & validated
    assert trained | validated == set(itertools.chain(*parts))


def test_hold_out_of_many_small_parts():
    parts = [[f"text {i}"] for i in range(400)]
    plan = Plan(8, 0, False, 0.1, "validation")
    validation = StreamDocuments(Parts(parts), plan, dict.fromkeys(range(8), Cursor()))
    validated = {validation.fetch(shard, i).text for shard in range(8) for i in range(30)}
    assert 20 < len(validated) < 70


def test_snapshot_behind_the_document_is_an_error():
    documents = StreamDocuments(Parts(parts_of(2000)), Plan(1, 0, True), {0: Cursor()})
    snapshot = [documents.fetch(0, i).snapshot for i in range(1500)][-1]
    resumed = StreamDocuments(Parts(parts_of(2000)), Plan(1, 0, True), {0: Cursor(3, 0, snapshot)})
    with pytest.raises(DataError, match="checkpoint's data state doesn't fit"):
        resumed.fetch(0, 3)


def test_validation_opens_few_parts():
    source = Parts(parts_of(*(1000,) * 48))
    plan = Plan(8, 0, False, 0.1, "validation")
    documents = StreamDocuments(source, plan, dict.fromkeys(range(8), Cursor()))
    for shard in range(8):
        documents.fetch(shard, 0)
    assert source.read < 1000
