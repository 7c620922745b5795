"""Warp operations, barriers, atomics and the schedule."""

import pytest
import torch

from titan_kernels.errors import EmulatorError, LaunchError
from titan_kernels.launch import Packed

LANES = torch.arange(32)


def shuffled(operand, width):
    """Source lanes of the four shuffles, from the CUDA C++ Programming Guide, "Warp Shuffle Functions"."""
    begin = LANES // width * width
    end = begin + width
    up, down, xor = LANES - 3, LANES + 5, LANES ^ 6
    return (
        begin + operand % width,
        torch.where(up < begin, LANES, up),
        torch.where(down >= end, LANES, down),
        # Lanes of an earlier group can be read, of a later one not.
        torch.where(xor >= end, LANES, xor),
    )


@pytest.mark.parametrize("width", [1, 2, 4, 8, 16, 32])
@pytest.mark.parametrize(
    ("kernel", "dtype"), [("f32", torch.float32), ("f16", torch.float16), ("i64", torch.int64)]
)
def test_shuffles(warps, kernel, dtype, width):
    x = (torch.arange(32) * 3 + 7).to(dtype)
    operand = (torch.arange(32) * 5 + 3) % 32
    y = torch.zeros(128, dtype=dtype)
    warps(f"shuffles_{kernel}", [x, operand.int(), y, width])
    assert torch.equal(y, torch.cat([x[source] for source in shuffled(operand, width)]))


@pytest.mark.parametrize("threads", [32, 96, 1024])
@pytest.mark.parametrize("kind", ["none", "all", "one", "mixed"])
def test_votes(warps, threads, kind):
    predicate = {
        "none": torch.zeros(threads),
        "all": torch.full((threads,), 5),
        "one": torch.arange(threads) == 31,
        "mixed": torch.arange(threads) % 3 == 0,
    }[kind].int()
    y = torch.zeros(threads, 6, dtype=torch.int32)
    warps("votes_i32", [predicate, y], block=threads)
    true = predicate != 0
    for first in range(0, threads, 32):
        warp = true[first : first + 32]
        ballot = sum(1 << i for i in range(32) if warp[i])
        assert (y[first : first + 32, 0].long() & 0xFFFFFFFF == ballot).all()
        assert (y[first : first + 32, 1] == int(warp.any())).all()
        assert (y[first : first + 32, 2] == int(warp.all())).all()
    assert (y[:, 3:] == torch.tensor([int(true.sum()), int(true.any()), int(true.all())])).all()


def run_atomics(warps, **options):
    counters, total = torch.zeros(6, dtype=torch.int32), torch.zeros(1)
    order = torch.full((5 * 64,), -1, dtype=torch.int32)
    warps("atomics_i32", [counters, total, order], grid=5, block=64, **options)
    return counters, total, order


def test_atomics(warps):
    counters, total, order = run_atomics(warps)
    assert counters.tolist() == [80, 80, 80, 80, 319, 320]
    assert total.item() == 160.0
    assert sorted(order.tolist()) == list(range(320))


def test_seed_decides_the_order_and_nothing_else(warps):
    runs = {seed: run_atomics(warps, seed=seed) for seed in range(4)}
    assert len({tuple(order.tolist()) for _, _, order in runs.values()}) == 4
    assert all(torch.equal(counters, runs[0][0]) for counters, _, _ in runs.values())
    assert torch.equal(run_atomics(warps, seed=2)[2], runs[2][2])
    # Lanes, warps and blocks are all out of order.
    order = runs[0][2].tolist()
    assert order[:32] != sorted(order[:32])
    assert [i // 64 for i in order] != sorted(i // 64 for i in order)


@pytest.mark.parametrize("threads", [32, 64, 256, 1024])
def test_reductions(warps, threads):
    x = torch.randint(-1000, 1000, (threads,)).float()
    for seed in range(3):
        y = torch.empty(2, threads)
        warps("reductions_f32", [x, y], block=threads, seed=seed)
        assert (y[0] == x.sum()).all()
        assert (y[1] == x.max()).all()


def test_maximum_propagates_nan_and_minus_infinity(warps):
    for value in (float("nan"), float("-inf")):
        x = torch.full((64,), float("-inf"))
        x[45] = value
        y = torch.empty(2, 64)
        warps("reductions_f32", [x, y], block=64)
        assert torch.equal(y[1].nan_to_num(5.0), torch.full((64,), value).nan_to_num(5.0))


def test_three_dimensions(warps):
    y = torch.empty(2 * 3 * 4, 8 * 4 * 2, dtype=torch.int32)
    warps("indices_i32", [y], grid=(2, 3, 4), block=(8, 4, 2))
    assert torch.equal(y, torch.arange(24).int()[:, None] * 1000 + torch.arange(64).int())


def test_fence_and_atomic_order_blocks(warps):
    x = torch.arange(16.0)
    for seed in range(3):
        args = [x, torch.empty(16), torch.zeros(1, dtype=torch.int32), torch.empty(1)]
        warps("last_block_fenced", args, grid=16, block=64, seed=seed)
        assert args[3].item() == 120.0
        args[2].zero_()
        with pytest.raises(EmulatorError, match="blocks have no order"):
            warps("last_block_unfenced", args, grid=16, block=64, seed=seed)


def test_packed_arguments(warps):
    a, b, y = torch.arange(5.0), torch.arange(32.0), torch.zeros(3, 32)
    warps("packed_f32", [Packed([a, None, b], 3), Packed([5, 7], 3), Packed([2.0, 0.0, 3.0], 3), y])
    assert y[0, :5].tolist() == [0, 2, 4, 6, 8]
    assert not y[1:].any()
    warps("packed_f32", [Packed([], 3), Packed([], 3), Packed([], 3), y])


def test_packed_arguments_are_checked(warps):
    a, y = torch.arange(5.0), torch.zeros(3, 32)
    scale = Packed([1.0], 3)
    with pytest.raises(EmulatorError, match=r"element 5 of `in\[1\]`, which has 5 elements"):
        warps("packed_f32", [Packed([None, a], 3), Packed([0, 6], 3), scale, y])
    with pytest.raises(LaunchError, match=r"`in` is an array of 3, but the argument's capacity is 4"):
        warps("packed_f32", [Packed([a], 4), Packed([1], 3), scale, y])
    with pytest.raises(LaunchError, match="`scale` takes packed floats, but got packed integers"):
        warps("packed_f32", [Packed([a], 3), Packed([1], 3), Packed([1], 3), y])
