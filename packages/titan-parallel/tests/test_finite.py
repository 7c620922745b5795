"""A bad number anywhere is found on every rank, by the name of its tensor."""

import math

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from titan_parallel.finite import nonfinite_tensors
from titan_parallel.testing import run_ranks


def trained(model):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(torch.arange(6).reshape(2, 3)).sum().backward()
    optimizer.step()
    return optimizer


def test_a_sound_state_has_none(tiny_model):
    model = tiny_model()
    assert nonfinite_tensors(model, trained(model)) == []


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_one_bad_element_among_huge_ones(value, dtype):
    module = nn.Linear(5, 4, bias=False).to(dtype)
    with torch.no_grad():
        module.weight.fill_(torch.finfo(dtype).max)
        assert nonfinite_tensors(module) == []
        module.weight[2, 3] = value
    assert nonfinite_tensors(module) == ["weight"]


def test_optimizer_states_and_buffers_count(tiny_model):
    model = tiny_model()
    model.register_buffer("scale", torch.tensor([1.0, math.inf]))
    optimizer = trained(model)
    optimizer.state[model.head.weight]["exp_avg_sq"][0, 0] = math.nan
    assert nonfinite_tensors(model, optimizer) == ["scale", "exp_avg_sq of head.weight"]
    assert nonfinite_tensors(model) == ["scale"]


@pytest.mark.parametrize("rank", [0, 3])
def test_a_bad_shard_of_one_rank_is_known_to_all(tiny_model, rank):
    def look():
        model = tiny_model()
        mesh = init_device_mesh("cpu", (4,))
        for layer in model.layers.values():
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        optimizer = trained(model)
        before = nonfinite_tensors(model, optimizer)
        if dist.get_rank() == rank:
            with torch.no_grad():
                model.embed.weight.to_local()[0, 0] = math.nan
        return before, nonfinite_tensors(model, optimizer)

    assert run_ranks(4, look) == [([], ["embed.weight"])] * 4
