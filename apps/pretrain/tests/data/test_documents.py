from __future__ import annotations

import collections

import pytest

from titan_pretrain.data.documents import IndexedDocuments
from titan_pretrain.data.plan import Plan
from titan_pretrain.data.source import ListSource


def dealt(documents: IndexedDocuments, plan: Plan, epochs_length: int) -> list[tuple[int, str]]:
    """(position, text) of all documents of all shards below a position."""
    found = []
    for shard in range(plan.num_shards):
        ordinal = 0
        while True:
            document = documents.fetch(shard, ordinal)
            position = shard + document.ordinal * plan.num_shards
            if position >= epochs_length:
                break
            found.append((position, document.text))
            ordinal = document.ordinal + 1
    return sorted(found)


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize(
    ("count", "epoch_length"), [(1, 1), (2, 5), (48, 49), (96, 97), (100, 101), (101, 101)]
)
def test_every_document_once_in_every_epoch(count, epoch_length, shuffle):
    texts = [f"t{i}" for i in range(count)]
    plan = Plan(48, seed=1, shuffle=shuffle)
    found = dealt(IndexedDocuments(ListSource("list", texts), plan), plan, 5 * epoch_length)
    for epoch in range(5):
        of_epoch = [text for position, text in found if position // epoch_length == epoch]
        assert sorted(of_epoch) == sorted(texts)
        assert shuffle or of_epoch == texts


@pytest.mark.parametrize("num_shards", [1, 6, 48, 240])
def test_unshuffled_shards_meet_every_document(num_shards):
    documents = IndexedDocuments(ListSource("list", [f"t{i}" for i in range(48)]), Plan(num_shards, 1, False))
    assert len({documents.fetch(0, ordinal).text for ordinal in range(240)}) == 48


def test_hold_out_is_disjoint_and_complete():
    texts = [f"t{i}" for i in range(300)]
    source = ListSource("list", texts)
    seen = {}
    for part in ("train", "validation"):
        plan = Plan(48, seed=1, shuffle=True, holdout=0.1, part=part)
        seen[part] = collections.Counter(text for _, text in dealt(IndexedDocuments(source, plan), plan, 301))
    assert not seen["train"].keys() & seen["validation"].keys()
    assert seen["train"] + seen["validation"] == collections.Counter(texts)
    assert 15 < len(seen["validation"]) < 50


def test_blank_documents_are_skipped():
    plan = Plan(4, seed=1, shuffle=False)
    documents = IndexedDocuments(ListSource("list", ["a", "", " \n\t", "b", ""]), plan)
    assert {text for _, text in dealt(documents, plan, 15)} == {"a", "b"}
