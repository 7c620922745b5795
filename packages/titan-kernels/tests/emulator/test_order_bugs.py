"""Each detector of races and broken synchronisation finds its planted bug, and nothing without it."""

import re

import pytest
import torch

from titan_kernels.errors import EmulatorError

RACES = [
    ("missing_barrier", "shared-race", "of `data` in shared memory"),
    ("overwritten_too_soon", "shared-race", "of `data` in shared memory"),
    ("two_writers", "shared-race", "of `data` in shared memory"),
    ("missing_syncwarp", "shared-race", "of `data` in shared memory"),
    ("plain_among_atomics", "shared-race", "of `counter` in shared memory"),
    ("ldmatrix_without_sync", "shared-race", "of `tile` in shared memory"),
    ("global_without_barrier", "global-race", "of `y`"),
]


@pytest.mark.parametrize(("name", "rule", "words"), RACES, ids=[race[0] for race in RACES])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_race_names_both_lines(order_bugs, name, rule, words, seed):
    with pytest.raises(EmulatorError) as caught:
        order_bugs(f"{name}_bug", [torch.zeros(64)], block=64, seed=seed)
    error = caught.value
    other = re.search(
        r", which thread \((\d+),0,0\) (?:writes|reads) in kernels/order_bugs.cu:(\d+) with no barrier",
        str(error),
    )
    assert error.rule == rule
    assert words in str(error)
    assert int(other[1]) != error.thread[0]
    # Which of the two comes second, and so is caught, depends on the seed.
    assert {error.line, int(other[2])} == {order_bugs.line(f"BUG {name}"), order_bugs.line(f"OTHER {name}")}
    order_bugs(f"{name}_ok", [torch.zeros(64)], block=64, seed=seed)


HALT = [
    (
        "barrier_in_branch",
        "divergent-barrier",
        ["threads 0-31 wait at __syncthreads() in {bug}; threads 32-63 have ended"],
    ),
    (
        "two_barriers",
        "divergent-barrier",
        ["wait at __syncthreads() in {bug}", "threads 32-63 wait at __syncthreads() in {other}"],
    ),
    (
        "early_return",
        "divergent-barrier",
        ["threads 0-49, 51-63 wait at __syncthreads() in {bug}; thread 50 has ended"],
    ),
    ("deadlock", "deadlock", ["wait at __shfl_xor_sync() in {bug}", "wait at __syncthreads() in {other}"]),
    (
        "lane_left",
        "divergent-collective",
        ["__shfl_sync() needs all 32 lanes", " wait at __shfl_sync() in {bug}", " has ended"],
    ),
    (
        "two_shuffles",
        "divergent-collective",
        ["wait at __shfl_xor_sync() in {other}", "wait at __shfl_xor_sync() in {bug}"],
    ),
    ("partial_mask", "partial-mask", ["{bug}: __shfl_sync() with mask 0x0000ffff"]),
    ("odd_width", "shuffle-width", ["{bug}: __shfl_sync() with width 12"]),
    ("endless", "endless", ["{bug}: the launch is still running after 0.2 s"]),
    ("ldmatrix_misaligned", "misaligned", ["{bug}: ldmatrix of 16 bytes at elements 9 to 16 of `tile`"]),
    (
        "blocks_collide",
        "global-race",
        ["{bug}: store of element ", " of block (", "where blocks have no order"],
    ),
]


@pytest.mark.parametrize(("name", "rule", "words"), HALT, ids=[each[0] for each in HALT])
@pytest.mark.parametrize("seed", [0, 1])
def test_planted_bug(order_bugs, name, rule, words, seed):
    limit = {"time_limit": 0.2} if name == "endless" else {}
    grid = 4 if name == "blocks_collide" else 1
    with pytest.raises(EmulatorError) as caught:
        order_bugs(f"{name}_bug", [torch.zeros(64)], grid=grid, block=64, seed=seed, **limit)
    places = {"bug": f"kernels/order_bugs.cu:{order_bugs.line(f'BUG {name}')}"}
    if any("{other}" in part for part in words):
        places["other"] = f"kernels/order_bugs.cu:{order_bugs.line(f'OTHER {name}')}"
    assert caught.value.rule == rule
    for part in words:
        assert part.format(**places) in str(caught.value)
    order_bugs(f"{name}_ok", [torch.zeros(64)], grid=grid, block=64, seed=seed)


def test_block_that_reads_what_another_block_writes(order_bugs):
    with pytest.raises(EmulatorError, match="where blocks have no order") as caught:
        order_bugs("block_reads_block_bug", [torch.zeros(4)], grid=4, block=64)
    assert caught.value.rule == "global-race"
    order_bugs("block_reads_block_ok", [torch.zeros(4)], grid=4, block=64)


def test_races_show_in_results_without_checks(order_bugs):
    """The random schedule alone makes a missing barrier visible for some seeds."""
    results = []
    for seed in range(6):
        y = torch.zeros(64)
        order_bugs("missing_barrier_bug", [y], block=64, seed=seed, check=False)
        results.append(y)
    right = torch.arange(64).roll(-32).float()
    assert any(not torch.equal(y, right) for y in results)
