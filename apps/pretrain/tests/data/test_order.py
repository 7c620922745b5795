from __future__ import annotations

import collections
import itertools

import pytest

from titan_pretrain.data.order import (
    epoch_order,
    hash64,
    held_out_documents,
    is_held_out,
    key64,
    permute_list,
)


def test_hash_is_splitmix64():
    # First outputs of the published generator for seed 0, whose state grows by this constant.
    step = 0x9E3779B97F4A7C15
    assert [hash64(i * step % 2**64) for i in range(3)] == [
        0xE220A8397B1DCDAF,
        0x6E789E6AA1B965F4,
        0x06C45D188009454F,
    ]


@pytest.mark.parametrize("n", [*range(1, 130), 1000, 4095, 4096, 4097, 10_007])
def test_every_document_once_per_epoch(n):
    order = epoch_order(n, None, seed=5, epoch=2, shuffle=True)
    assert sorted(order(i) for i in range(n)) == list(range(n))


@pytest.mark.parametrize("blocks", [[1], [3, 0, 4], [0, 0, 5, 1, 0], [100, 7, 7, 300], [10] * 50])
def test_blocks_are_permuted_and_stay_together(blocks):
    n = sum(blocks)
    order = epoch_order(n, blocks, seed=5, epoch=2, shuffle=True)
    documents = [order(i) for i in range(n)]
    assert sorted(documents) == list(range(n))
    block_of = [b for b, size in enumerate(blocks) for _ in range(size)]
    visited = [block_of[document] for document in documents]
    changes = sum(a != b for a, b in itertools.pairwise(visited))
    assert changes == sum(size > 0 for size in blocks) - 1


def test_blocks_and_their_content_are_shuffled():
    epochs = [epoch_order(500, [10] * 50, seed=0, epoch=e, shuffle=True) for e in (0, 1)]
    orders = [[order(i) for i in range(500)] for order in epochs]
    assert orders[0] != orders[1]
    assert [d // 10 for d in orders[0][::10]] != list(range(50))
    assert any(orders[0][i : i + 10] != sorted(orders[0][i : i + 10]) for i in range(0, 500, 10))


def test_epochs_and_seeds_differ_and_identity_does_not():
    def documents(seed, epoch, shuffle=True):
        order = epoch_order(200, None, seed=seed, epoch=epoch, shuffle=shuffle)
        return [order(i) for i in range(200)]

    assert len({tuple(documents(s, e)) for s in range(5) for e in range(5)}) == 25
    assert documents(1, 3) == documents(1, 3)
    assert documents(1, 3, shuffle=False) == list(range(200))


@pytest.mark.parametrize("n", [2, 6, 10])
def test_every_position_is_as_likely(n):
    orders = [epoch_order(n, None, seed=0, epoch=e, shuffle=True) for e in range(4000)]
    counts = collections.Counter((i, order(i)) for order in orders for i in range(n))
    # Binomial(4000, 1/n): six standard deviations.
    spread = 6 * (4000 / n * (1 - 1 / n)) ** 0.5
    assert all(abs(counts[i, d] - 4000 / n) < spread for i in range(n) for d in range(n))


def test_neighbours_are_separated():
    order = epoch_order(100_000, None, seed=1, epoch=0, shuffle=True)
    distances = [abs(order(i) - order(i + 1)) for i in range(2000)]
    assert 28_000 < sum(distances) / len(distances) < 38_000  # a third of n for random pairs


def test_hold_out_share():
    assert not any(is_held_out(i, 0.0) for i in range(1000))
    assert abs(sum(is_held_out(i, 0.02) for i in range(50_000)) - 1000) < 200
    few = {i for i in range(5000) if is_held_out(i, 0.02)}
    assert few < {i for i in range(5000) if is_held_out(i, 0.1)}


@pytest.mark.parametrize("holdout", [0.001, 0.02, 0.5, 0.999])
def test_held_out_documents_are_the_held_out_ones(holdout, monkeypatch):
    monkeypatch.setattr("titan_pretrain.data.order._CHUNK", 1000)
    expected = [i for i in range(4321) if is_held_out(i, holdout)]
    assert held_out_documents.__wrapped__(4321, holdout).tolist() == expected
    assert held_out_documents.__wrapped__(0, holdout).tolist() == []


def test_keys_are_independent():
    assert len({key64(name, i) for name in ("a", "b") for i in range(100)}) == 200
    assert key64("a", 1) != key64("a1")


def test_permute_list():
    assert sorted(permute_list(512, "x", 1)) == list(range(512))
    assert permute_list(512, "x", 1) != permute_list(512, "x", 2)
    assert permute_list(0, "x") == []
