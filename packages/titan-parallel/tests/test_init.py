import math

import pytest
import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

from titan_parallel.init import counter_trunc_normal_
from titan_parallel.testing import run_ranks


def _full(shape, name="w", seed=3):
    return counter_trunc_normal_(torch.empty(shape), name, seed=seed, std=0.02)


@pytest.mark.parametrize(
    ("shape", "mesh_shape", "placements"),
    [
        ((7,), (4,), [Shard(0)]),
        ((13, 10), (4,), [Shard(0)]),
        ((13, 10), (2, 2), [Replicate(), Shard(0)]),
        ((13, 10), (2, 2), [Shard(0), Shard(1)]),
        ((6, 3, 5), (2, 2), [Shard(0), Shard(2)]),
        ((13, 10), (2, 2), [Shard(0), Shard(0)]),
    ],
)
def test_shards_equal_the_single_process_bit_for_bit(shape, mesh_shape, placements):
    def init():
        mesh = init_device_mesh("cpu", mesh_shape)
        tensor = distribute_tensor(torch.zeros(shape), mesh, placements)
        counter_trunc_normal_(tensor, "w", seed=3, std=0.02)
        return tensor.full_tensor()

    for result in run_ranks(4, init):
        assert torch.equal(result, _full(shape))


def test_large_tensors_are_filled_in_chunks_without_a_seam():
    whole = _full((3000, 64))
    assert torch.equal(whole[:1000], _full((1000, 64)))  # an element depends on its index only


def test_distribution_is_a_normal_truncated_at_three_sigma():
    x = _full((1000, 1000)).double() / 0.02
    density = math.exp(-4.5) / math.sqrt(2 * math.pi)
    expected = math.sqrt(1 - 2 * 3 * density / math.erf(3 / math.sqrt(2)))
    assert x.abs().max() <= 3.0
    assert x.abs().max() > 2.99
    assert abs(x.mean()) < 5e-3
    assert abs(x.std() - expected) < 5e-3
    # Kolmogorov-Smirnov distance to the truncated normal; 1.95 / sqrt(n) is the 0.1 % level
    ordered = x.flatten().sort().values
    edge = math.erf(3 / math.sqrt(2))
    cdf = (torch.erf(ordered / math.sqrt(2)) / edge + 1) / 2
    ranks = torch.arange(1, x.numel() + 1) / x.numel()
    assert (cdf - ranks).abs().max() < 1.95 / math.sqrt(x.numel())


def test_rows_columns_names_and_seeds_are_uncorrelated():
    x = _full((512, 512))
    others = [
        x.T.contiguous(),
        _full((512, 512), name="v"),
        _full((512, 512), seed=4),
        x.roll(1, 0),
        x.roll(1, 1),
    ]
    for other in others:
        correlation = torch.corrcoef(torch.stack([x.flatten(), other.flatten()]))[0, 1]
        assert abs(correlation) < 0.02


def test_half_precision_is_the_rounded_fp32_value():
    half = counter_trunc_normal_(torch.empty(50, 3, dtype=torch.float16), "w", seed=3, std=0.02)
    assert torch.equal(half, _full((50, 3)).half())
