"""Order and resume of whole loaders, over every kind of dataset."""

from __future__ import annotations

import json

import pytest

from titan_pretrain.data import merge_states
from titan_pretrain.data.source import ListSource
from titan_pretrain.errors import DataError, TrainingError, UsageError


@pytest.mark.slow
def test_order_does_not_depend_on_ranks_or_workers(kind, source_of, ranks):
    source = source_of(kind)
    expected = ranks(source, 1).take(96)
    assert ranks(source, 1, workers=2).take(96) == expected
    assert ranks(source, 2, workers=3).take(96) == expected
    assert ranks(source, 4).take(96) == expected


def test_resume_is_exact_with_any_workers_and_after_many_epochs(kind, source_of, ranks):
    source = source_of(kind)
    expected = ranks(source, 1).take(600)  # 60 documents of about 8 tokens: several epochs
    run = ranks(source, 1, workers=2)
    seen = []
    for workers, count in ((2, 10), (0, 62), (1, 100), (3, 302), (0, 126)):
        resumed = ranks(source, 1, workers=workers)
        resumed.load(run.state())
        run.close()
        run = resumed
        seen += run.take(count)
    assert seen == expected


def test_ranks_may_change_without_loss_or_repetition(kind, source_of, ranks):
    source = source_of(kind)
    expected = ranks(source, 1).take(176)
    state, seen = None, []
    for dp, count in ((1, 8), (2, 40), (4, 80), (1, 48)):
        run = ranks(source, dp, workers=2 if dp == 4 else 0)
        if state is not None:
            run.load(state)
        seen += run.take(count)
        state = run.state()
    assert seen == expected
    assert len(set(seen)) > 100


def test_ranks_change_where_the_consumed_sequences_do_not_divide(list_source, ranks):
    source = list_source(50)
    expected = ranks(source, 1).take(30)
    first = ranks(source, 1)
    seen = first.take(10)  # 10 is no multiple of 4
    second = ranks(source, 4)
    second.load(first.state())
    seen += second.take(16)
    third = ranks(source, 1)
    third.load(second.state())
    assert seen + third.take(4) == expected


def test_state_ignores_what_workers_have_read_ahead(list_source, make_loader, take):
    plain, ahead = make_loader(list_source(50)), make_loader(list_source(50), workers=3)
    for _ in range(4):
        take(plain, 1), take(ahead, 1)
        assert ahead.state_dict() == plain.state_dict()


def test_shuffle_and_seed_decide_the_order(list_source, ranks):
    source = list_source(50)
    base = ranks(source, 1).take(96)
    assert ranks(source, 1).take(96) == base
    assert ranks(source, 1, seed=4).take(96) != base
    plain = ranks(source, 1, shuffle=False).take(96)
    assert plain != base
    assert ranks(source, 1, shuffle=False, seed=4).take(96) == plain


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("count", [1, 2, 47, 48, 96])
def test_tiny_datasets_loop(count, shuffle, ranks):
    source = ListSource("list", [f"document {i} " * 9 for i in range(count)])
    run = ranks(source, 2, shuffle=shuffle)
    seen = run.take(400)
    expected = ranks(source, 1, shuffle=shuffle)
    assert expected.take(400) == seen
    resumed = ranks(source, 1, shuffle=shuffle)
    resumed.load(run.state())
    assert resumed.take(40) == expected.take(40)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("shuffle", [True, False])
def test_empty_documents_only_is_an_error(shuffle, workers, make_loader):
    loader = make_loader(ListSource("list", ["", " \n"] * 30), shuffle=shuffle, workers=workers)
    with pytest.raises(DataError, match="every document is empty"):
        next(loader)


def test_no_documents_is_an_error(make_loader):
    with pytest.raises(DataError, match="has no documents"):
        make_loader(ListSource("list", []))


@pytest.mark.parametrize("shuffle", [True, False])
def test_one_document_with_text_among_many_empty_ones(shuffle, ranks):
    texts = [""] * 95 + ["the only text"]
    seen = ranks(ListSource("list", texts), 1, shuffle=shuffle).take(96)
    assert len(seen) == 96


def test_degree_that_does_not_divide_the_shards(list_source, ranks, make_loader):
    run = ranks(list_source(50), 1)
    run.take(4)
    with pytest.raises(UsageError, match=r"5 .* 48 virtual .* 1, 2, 3, 4, 6, 8, 12, 16, 24, 48"):
        ranks(list_source(50), 5).load(run.state())
    with pytest.raises(UsageError, match="one of 1, 2, 4, 8"):
        make_loader(list_source(50), num_shards=8, dp_size=3)


def test_fresh_run_takes_any_degree(list_source, ranks):
    source = list_source(50)
    run = ranks(source, 5)
    seen = run.take(20)
    resumed = ranks(source, 1)
    resumed.load(run.state())
    assert run.state()["num_shards"] == 240
    assert seen + resumed.take(20) == ranks(source, 1, num_shards=240).take(40)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"seed": 4}, "training.seed: 3 in the checkpoint, 4 now"),
        ({"seq_len": 32}, "training.seq_len: 16 in the checkpoint, 32 now"),
        ({"shuffle": False}, "data.shuffle: True in the checkpoint, False now"),
        ({"document_mask": False}, "data.document_mask: True in the checkpoint, False now"),
        ({"holdout": 0.1}, "hold-out: 0.0 in the checkpoint, 0.1 now"),
    ],
)
def test_other_settings_are_refused_in_words(change, named, list_source, make_loader):
    state = merge_states([make_loader(list_source(50)).state_dict()])
    with pytest.raises(UsageError, match=named):
        make_loader(list_source(50), **change).load_state_dict(state)


def test_other_dataset_and_tokenizer_are_refused_together(list_source, make_loader, tokenizer_without_bos):
    state = merge_states([make_loader(list_source(50)).state_dict()])
    other = make_loader(list_source(51), tokenizer=tokenizer_without_bos)
    with pytest.raises(UsageError, match=r"data: .*documents=50.*documents=51.*; tokenizer: "):
        other.load_state_dict(state)


def test_micro_batch_size_may_change(list_source, make_loader, take):
    source = list_source(50)
    first = make_loader(source)
    seen = take(first, 3)
    second = make_loader(source, micro_batch_size=5)
    second.load_state_dict(merge_states([first.state_dict()]))
    assert seen + take(second, 2) == take(make_loader(source), 8)


def test_unmerged_state_is_refused(list_source, make_loader):
    state = make_loader(list_source(50), dp_size=2).state_dict()
    with pytest.raises(TrainingError, match="24 of 48 virtual shards"):
        make_loader(list_source(50), dp_size=2).load_state_dict(state)


def test_state_is_small_json(list_source, make_loader, take):
    loader = make_loader(list_source(1000))
    take(loader, 100)
    state = json.loads(json.dumps(loader.state_dict()))
    assert state["sequences"] == state["global_sequences"] == 200
    assert set(state["shards"]["0"]) == {"document", "offset"}


def test_changed_documents_are_noticed(make_loader, take):
    """A file edited in place keeps its name; if it is also shorter than the cursor, that is an error."""

    class Shrunk(ListSource):
        def identity(self):
            return {"dataset": "list"}

    loader = make_loader(Shrunk("list", ["x" * 1000]))
    take(loader, 60)
    resumed = make_loader(Shrunk("list", ["x" * 10]))
    resumed.load_state_dict(merge_states([loader.state_dict()]))
    with pytest.raises(DataError, match="the dataset changed"):
        next(resumed)


def test_a_closed_loader_goes_on(list_source, make_loader, take):
    loader = make_loader(list_source(50), workers=2)
    seen = take(loader, 3)
    loader.close()
    assert seen + take(loader, 3) == take(make_loader(list_source(50)), 6)
