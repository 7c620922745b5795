from __future__ import annotations

import pytest

from titan_pretrain.data.plan import (
    Plan,
    check_not_empty,
    legal_degrees,
    shards_for_training,
)
from titan_pretrain.data.source import ListSource
from titan_pretrain.errors import DataError, UsageError


def documents(count):
    return ListSource("list", [f"t{i}" for i in range(count)])


@pytest.mark.parametrize(("ranks", "shards"), [(1, 48), (2, 48), (8, 48), (5, 240), (64, 192)])
def test_shards_for_training(ranks, shards):
    assert shards_for_training(ranks) == shards


def test_legal_degrees():
    assert legal_degrees(48) == [1, 2, 3, 4, 6, 8, 12, 16, 24, 48]


def test_nothing_left_names_the_way_out():
    with pytest.raises(UsageError, match=r"\(0.999\) takes all of the 3 .* validation.data"):
        check_not_empty(documents(3), Plan(48, 0, True, 0.999, "train"))
    with pytest.raises(DataError, match="has no documents"):
        check_not_empty(documents(0), Plan(48, 0, True))
