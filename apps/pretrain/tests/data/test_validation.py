"""The validation share: held-out documents, the same at every validation."""

from __future__ import annotations

import collections

import pytest

from titan_pretrain.data.plan import Plan
from titan_pretrain.data.source import ListSource
from titan_pretrain.data.validation import Selection, validation_view
from titan_pretrain.errors import UsageError


def in_global_order(ranks, source, dp, sequences, **options):
    return ranks(source, dp, part="validation", **options).take(sequences)


@pytest.mark.slow
def test_same_sequences_with_any_number_of_ranks(kind, source_of, ranks, make_texts):
    source = source_of(kind, make_texts(300))
    expected = in_global_order(ranks, source, 1, 96, holdout=0.1)
    for dp in (2, 3, 8, 16):
        assert in_global_order(ranks, source, dp, 96, holdout=0.1) == expected


def test_every_validation_starts_over(list_source, make_loader, take):
    loader = make_loader(list_source(300), part="validation", holdout=0.1, workers=2)
    first = take(loader, 5)
    loader.close()
    assert take(loader, 5) == first
    assert take(loader, 5) != first


def documents_seen(loader, batches):
    """Ids of the documents that start in the next sequences."""
    seen = collections.Counter()
    for _ in range(batches):
        for row in next(loader).tokens.tolist():
            text = bytes(token if token < 256 else 0 for token in row).decode("latin1")
            seen.update(
                piece[1 : piece.index(">")] for piece in text.split("\0") if piece[:1] == "<" and ">" in piece
            )
    return seen


@pytest.mark.slow
def test_training_and_validation_share_no_document(kind, source_of, make_loader):
    texts = [f"<{i}>" + "x" * (i % 40) for i in range(200)]
    source = source_of(kind, texts)
    options = {"holdout": 0.15, "seq_len": 64, "micro_batch_size": 48}
    training = documents_seen(make_loader(source, **options), 40)
    validation = documents_seen(make_loader(source, part="validation", **options), 40)
    assert not training.keys() & validation.keys()
    assert len(training | validation) == 200


def test_few_held_out_documents_are_not_repeated_from_their_start(make_loader, take):
    source = ListSource("list", [f"document {i} " + "".join(map(str, range(i, i + 400))) for i in range(300)])
    loader = make_loader(source, part="validation", holdout=0.02)
    hashes = take(loader, 24)
    assert len(set(hashes)) == len(hashes)


def test_own_dataset_is_read_whole(list_source, make_loader):
    loader = make_loader(list_source(40), part="validation", seq_len=64, micro_batch_size=24)
    assert len(documents_seen(loader, 60)) == 36  # every tenth is empty


def test_many_held_out_documents_are_thinned_out(monkeypatch, make_loader):
    monkeypatch.setattr("titan_pretrain.data.validation._MAX_DOCUMENTS", 10)
    source = ListSource("list", [f"<{i}>" for i in range(3000)])
    seen = documents_seen(make_loader(source, part="validation", holdout=0.1, seq_len=64), 20)
    numbers = sorted(int(number) for number in seen)
    assert 5 <= len(numbers) <= 10
    assert numbers[0] < 600
    assert numbers[-1] > 2400


@pytest.mark.parametrize(("count", "shards"), [(1, 1), (5, 4), (15, 8), (16, 16), (5000, 16)])
def test_number_of_shards(count, shards):
    source, plan = validation_view(ListSource("list", ["t"] * count), Plan(48, 0, True, part="validation"))
    assert plan.num_shards == shards
    assert len(source) == count


def test_selection_keeps_the_blocks():
    class Blocks(ListSource):
        blocks = (3, 4, 2, 1)

    selection = Selection(Blocks("list", map(str, range(10))), [0, 2, 3, 8, 9])
    assert list(selection.blocks) == [2, 1, 1, 1]
    assert [selection[i] for i in range(5)] == ["0", "2", "3", "8", "9"]


def test_hold_out_without_documents(list_source, make_loader):
    with pytest.raises(UsageError, match="takes none of the 3 documents"):
        make_loader(list_source(3), part="validation", holdout=0.001)


def test_hold_out_of_a_stream_without_documents(source_of, make_loader):
    from titan_pretrain.errors import DataError

    source = source_of("one jsonl.gz", ["a", "b"])
    with pytest.raises(
        DataError, match=r"no documents with text for validation with validation.holdout \(0.001\)"
    ):
        next(make_loader(source, part="validation", holdout=0.001))
