import math

import pytest
import torch
import torch.distributed as dist
from torch import nn

from titan_parallel.fsdp import shard_model
from titan_parallel.gradients import GradientNorm, measure_gradients, scale_gradients_
from titan_parallel.mesh import ParallelDims
from titan_parallel.precision import resolve_precision
from titan_parallel.testing import run_ranks

FP32 = resolve_precision("fp32", torch.device("cpu"))


def _gradients(tiny_model, world_size, dp_replicate, poison=None, loss_scale=1.0):
    """Norm and full gradients after one backward pass over 4 rows, split over the ranks."""

    def run():
        dims = ParallelDims.resolve(world_size, dp_replicate=dp_replicate)
        model = tiny_model()
        shard_model(model, model.layers.values(), dims.build("cpu"), precision=FP32)
        rows = torch.arange(12).reshape(4, 3) % 11
        mine = rows.chunk(world_size)[dist.get_rank()]
        (model(mine).square().sum() * loss_scale).backward()
        if poison is not None and dist.get_rank() == poison[0]:
            local = next(p for n, p in model.named_parameters() if n == "layers.1.weight").grad
            (local.to_local() if hasattr(local, "to_local") else local).view(-1)[0] = poison[1]
        norm = measure_gradients(model.parameters(), loss_scale=loss_scale)
        if norm.finite:
            scale_gradients_(model.parameters(), norm, loss_scale=loss_scale, max_norm=1.0)
        grads = {n: p.grad for n, p in model.named_parameters()}
        return norm.value, {n: g.full_tensor() if hasattr(g, "full_tensor") else g for n, g in grads.items()}

    return run_ranks(world_size, run)


@pytest.mark.parametrize(("world_size", "dp_replicate"), [(2, 1), (4, 1), (2, 2), (4, 2), (4, 4)])
def test_norm_and_clipped_gradients_equal_one_process(tiny_model, world_size, dp_replicate):
    ((single_norm, single_grads),) = _gradients(tiny_model, 1, 1)
    model = tiny_model()
    model(torch.arange(12).reshape(4, 3) % 11).square().sum().backward()
    truth = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    assert math.isclose(single_norm, truth.item(), rel_tol=1e-6)
    for norm, grads in _gradients(tiny_model, world_size, dp_replicate):
        assert math.isclose(norm, single_norm, rel_tol=1e-6)
        for name, parameter in model.named_parameters():
            torch.testing.assert_close(grads[name], parameter.grad, rtol=1e-5, atol=1e-7)
            torch.testing.assert_close(single_grads[name], parameter.grad, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("rank", [0, 1, 3])
def test_one_bad_element_on_one_rank_is_everybodys_verdict(tiny_model, rank, value):
    results = _gradients(tiny_model, 4, 2, poison=(rank, value))
    assert [GradientNorm(norm).finite for norm, _ in results] == [False] * 4


def test_loss_scale_is_divided_out(tiny_model):
    ((plain, grads),) = _gradients(tiny_model, 1, 1)
    ((scaled, unscaled),) = _gradients(tiny_model, 1, 1, loss_scale=2.0**10)
    assert math.isclose(plain, scaled, rel_tol=1e-6)
    for name, grad in grads.items():
        torch.testing.assert_close(unscaled[name], grad, rtol=1e-6, atol=1e-9)


def test_without_process_group_and_without_gradients():
    parameter = nn.Parameter(torch.ones(3))
    assert measure_gradients([parameter]).value == 0.0
    parameter.grad = torch.tensor([3.0, 0.0, 4.0])
    norm = measure_gradients([parameter, nn.Parameter(torch.ones(2))])
    assert norm.value == 5.0
    scale_gradients_([parameter], norm, max_norm=10.0)
    assert parameter.grad.tolist() == [3.0, 0.0, 4.0]
