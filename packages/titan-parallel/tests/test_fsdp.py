import copy

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FSDPModule

from titan_parallel.activation import checkpoint_blocks
from titan_parallel.fsdp import shard_model
from titan_parallel.mesh import ParallelDims
from titan_parallel.precision import resolve_precision
from titan_parallel.testing import run_ranks

CPU = torch.device("cpu")
ROWS = torch.arange(24).reshape(8, 3) % 11


def gradients(build, world_size, precision="fp32", *, every=0, compiled=False, scale=1.0, **options):
    def run():
        model = build()
        if compiled:
            for layer in model.layers.values():
                layer.forward = torch.compile(layer.forward, fullgraph=True)
        if every:
            checkpoint_blocks(model.layers.values(), every=every)
        dims = ParallelDims.resolve(dist.get_world_size())
        chosen = resolve_precision(precision, CPU)
        shard_model(model, model.layers.values(), dims.build("cpu"), precision=chosen, **options)
        mine = ROWS.chunk(dist.get_world_size())[dist.get_rank()]
        (model(mine).float().square().sum() * scale).backward()
        grads = {name: parameter.grad for name, parameter in model.named_parameters()}
        full = {n: g.full_tensor() if hasattr(g, "full_tensor") else g for n, g in grads.items()}
        assert all(g.dtype == torch.float32 for g in full.values())
        return full

    return run_ranks(world_size, run)


@pytest.fixture
def truth(tiny_model):
    model = copy.deepcopy(tiny_model()).double()
    model(ROWS).square().sum().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def assert_equal(found, truth, tolerance):
    for name, expected in truth.items():
        assert expected.abs().max() > 0, name
        error = (found[name].double() - expected).abs().max() / expected.abs().max()
        assert error < tolerance, (name, error)


@pytest.mark.parametrize("reshard_after_forward", [True, False])
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_gradients_are_summed_over_ranks(tiny_model, truth, world_size, reshard_after_forward):
    for found in gradients(tiny_model, world_size, reshard_after_forward=reshard_after_forward):
        assert_equal(found, truth, 1e-6)


@pytest.mark.parametrize(("precision", "tolerance"), [("fp16", 4e-3), ("bf16", 3e-2)])
@pytest.mark.parametrize("world_size", [1, 2])
def test_half_precision_computes_in_half_and_reduces_in_fp32(
    tiny_model, truth, world_size, precision, tolerance
):
    for found in gradients(tiny_model, world_size, precision):
        assert_equal(found, truth, tolerance)
        assert any((found[name].double() - truth[name]).abs().max() > 1e-5 for name in truth)


def test_fp16_reduction_does_not_overflow(tiny_model):
    """Each rank's gradients are near fp16's largest number; their sum is far above it."""
    (single, *_) = gradients(tiny_model, 1)
    largest = max(grad.abs().max().item() for grad in single.values())
    for found in gradients(tiny_model, 4, "fp16", scale=6e4 / largest):
        assert all(torch.isfinite(grad).all() for grad in found.values())
        assert max(grad.abs().max() for grad in found.values()) > 3e4


@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("world_size", [1, 2])
def test_activation_checkpointing_changes_nothing_and_keeps_names(tiny_model, truth, world_size, every):
    for found in gradients(tiny_model, world_size, every=every):
        assert set(found) == set(truth)
        assert_equal(found, truth, 1e-6)


def test_activation_checkpointing_recomputes_every_second_block(tiny_model):
    model = tiny_model()
    calls = []

    def count(name, forward):
        def counted(x):
            calls.append(name)
            return forward(x)

        return counted

    for name, layer in model.layers.items():
        layer.forward = count(name, layer.forward)
    checkpoint_blocks(model.layers.values(), every=2)
    model(ROWS).sum().backward()
    assert calls == ["0", "1", "0"]
    assert [name for name, _ in model.named_parameters()] == [n for n, _ in tiny_model().named_parameters()]


@pytest.mark.slow
def test_compiled_blocks(tiny_model, truth):
    for found in gradients(tiny_model, 2, compiled=True, every=1):
        assert_equal(found, truth, 1e-6)


def test_one_process_in_fp32_is_left_alone(tiny_model):
    def is_wrapped(precision):
        model = tiny_model()
        mesh = ParallelDims.resolve(1).build("cpu")
        shard_model(model, model.layers.values(), mesh, precision=resolve_precision(precision, CPU))
        return isinstance(model, FSDPModule)

    assert run_ranks(1, is_wrapped, "fp32") == [False]
    assert run_ranks(1, is_wrapped, "fp16") == [True]
