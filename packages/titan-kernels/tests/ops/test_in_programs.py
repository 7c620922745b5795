"""Every differentiable operator as programs use it: compiled, checkpointed, autocast."""

import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from titan_kernels.errors import UnsupportedError
from titan_kernels.ops import rms_norm
from titan_kernels.registry import ops
from titan_kernels.testing import DEVICE, arguments

OPS = [op for op in ops().values() if op.differentiable and not op.mutates]
EACH = pytest.mark.parametrize("op", OPS, ids=[op.name for op in OPS])


def call(op, dtype=torch.float32):
    """The operator's first case: a function of its floating-point tensors, and these."""
    args = arguments(next(case for case in op.cases() if not case.realistic), dtype)
    leaves, spec = pytree.tree_flatten(args)
    places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor) and x.is_floating_point()]

    def function(*tensors):
        filled = list(leaves)
        for place, x in zip(places, tensors, strict=True):
            filled[place] = x
        out = op(*pytree.tree_unflatten(filled, spec))
        return out[0] if isinstance(out, (tuple, list)) else out

    return function, [leaves[i].detach().clone().requires_grad_() for i in places]


def value_and_gradients(function, tensors):
    y = function(*tensors)
    weights = torch.cos(torch.arange(y.numel(), device=y.device)).view(y.shape).to(y.dtype)
    return y, torch.autograd.grad(y, tensors, weights, allow_unused=True)


def assert_same(one, other, **tolerance):
    torch.testing.assert_close(one[0], other[0], **tolerance)
    for a, b in zip(one[1], other[1], strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a, b, **tolerance)


@EACH
def test_compiled_as_one_graph(op):
    function, tensors = call(op)
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert_same(value_and_gradients(compiled, tensors), value_and_gradients(function, tensors))


@EACH
def test_checkpointed(op):
    function, tensors = call(op)
    again = value_and_gradients(lambda *x: checkpoint(function, *x, use_reentrant=False), tensors)
    assert_same(again, value_and_gradients(function, tensors), rtol=0, atol=0)


@EACH
def test_autocast_changes_nothing(op):
    function, tensors = call(op)
    with torch.autocast(DEVICE.type, torch.bfloat16):
        cast = value_and_gradients(function, tensors)
    assert_same(cast, value_and_gradients(function, tensors), rtol=0, atol=0)


ONCE = [op for op in OPS if not op.twice]
# Saves no tensor that has a gradient: its own depends on nothing but the incoming one.
LINEAR = {"embedding"}


@pytest.mark.parametrize("op", ONCE, ids=[op.name for op in ONCE])
@pytest.mark.parametrize("constant", [True, False], ids=["constant", "dependent"])
def test_second_derivatives_are_refused_not_forgotten(op, constant):
    function, tensors = call(op)
    y = function(*tensors)
    dy = torch.ones_like(y, requires_grad=not constant)
    recorded = torch.autograd.grad(y, tensors, dy, create_graph=True, allow_unused=True)
    plain = torch.autograd.grad(function(*tensors), tensors, dy.detach(), allow_unused=True)
    for one, other in zip(recorded, plain, strict=True):
        assert (one is None) == (other is None)
        assert one is None or torch.equal(one, other)
    penalty = sum(each.square().sum() for each in recorded if each is not None)
    if constant and op.name in LINEAR:
        assert not penalty.requires_grad
        return
    wanted = tensors if constant else [*tensors, dy]
    with pytest.raises(UnsupportedError, match=f"titan::{op.name} has no second derivative"):
        torch.autograd.grad(penalty + y.sum() + dy.sum(), wanted, allow_unused=True)


def test_gradients_of_a_checkpoint_can_be_recorded():
    x = torch.ones(2, 8, device=DEVICE, requires_grad=True)
    y = checkpoint(rms_norm, x, use_reentrant=False)
    (recorded,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    torch.testing.assert_close(recorded, torch.autograd.grad(rms_norm(x).sum(), x)[0])
