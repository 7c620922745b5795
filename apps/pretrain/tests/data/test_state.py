from __future__ import annotations

import pytest

from titan_pretrain.data import merge_states
from titan_pretrain.errors import TrainingError


def states(ranks, list_source, dp=4, sequences=16):
    run = ranks(list_source(50), dp)
    run.take(sequences)
    return [loader.state_dict() for loader in run.loaders]


def test_union(ranks, list_source):
    merged = merge_states(states(ranks, list_source))
    assert merged["num_shards"] == 48
    assert list(merged["shards"]) == [str(shard) for shard in range(48)]
    assert merged["sequences"] == merged["global_sequences"] == 16


def test_missing_rank(ranks, list_source):
    with pytest.raises(TrainingError, match="lacks 12 of 48 virtual shards"):
        merge_states(states(ranks, list_source)[1:])
    with pytest.raises(TrainingError, match="no data state"):
        merge_states([])


def test_doubled_rank(ranks, list_source):
    parts = states(ranks, list_source)
    with pytest.raises(TrainingError, match="two data states hold virtual shard 2"):
        merge_states([*parts, parts[2]])


def test_ranks_at_different_steps(ranks, list_source):
    parts = states(ranks, list_source, sequences=16)
    later = states(ranks, list_source, sequences=24)
    with pytest.raises(TrainingError, match="differ in global_sequences"):
        merge_states([*parts[:3], later[3]])


def test_ranks_with_different_data(ranks, list_source):
    parts = states(ranks, list_source)
    parts[1] = {**parts[1], "fingerprint": {}}
    with pytest.raises(TrainingError, match="differ in fingerprint"):
        merge_states(parts)
