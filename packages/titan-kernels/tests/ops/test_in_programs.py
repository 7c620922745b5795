"""Every differentiable operator as programs use it: compiled, checkpointed, autocast, frozen in part."""

import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import checkpoint

from titan_kernels.errors import UnsupportedError
from titan_kernels.ops import rms_norm
from titan_kernels.registry import ops
from titan_kernels.testing import DEVICE, arguments, running

OPS = [op for op in ops().values() if op.differentiable and not op.mutates]
EACH = pytest.mark.parametrize("op", OPS, ids=[op.name for op in OPS])


def call(op, dtype=torch.float32, every=False):
    """The operator's first case: a function of its floating-point tensors, and these.

    It returns the first result, or every one that has a gradient.
    """
    args = arguments(next(case for case in op.cases() if not case.realistic), dtype)
    leaves, spec = pytree.tree_flatten(args)
    places = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor) and x.is_floating_point()]

    def function(*tensors):
        filled = list(leaves)
        for place, x in zip(places, tensors, strict=True):
            filled[place] = x
        out = op(*pytree.tree_unflatten(filled, spec))
        results = [each for each in pytree.tree_leaves(out) if isinstance(each, torch.Tensor)]
        return [each for each in results if each.requires_grad] if every else results[0]

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


def offset(dy):
    return torch.cat((dy.new_zeros(1), dy.flatten()))[1:].view(dy.shape)


COTANGENTS = {
    "expanded": lambda dy: dy.new_full((), 0.5).expand(dy.shape),
    "expanded rows": lambda dy: dy[..., :1].expand(dy.shape),
    "strided": lambda dy: dy.repeat_interleave(2, -1)[..., ::2],
    "transposed": lambda dy: dy.permute(*range(dy.dim())[::-1]).contiguous().permute(*range(dy.dim())[::-1]),
    "offset": offset,
}


def implementations():
    return [
        pytest.param(op, each.name, id=f"{op.name}-{each.name}") for op in OPS for each in op.implementations
    ]


@pytest.mark.parametrize(("op", "implementation"), implementations())
def test_incoming_gradients_may_lie_anywhere(op, implementation):
    function, tensors = call(op, every=True)
    with running(implementation, seed=1):
        outputs = function(*tensors)
        random = [
            torch.cos(torch.arange(y.numel(), device=DEVICE).to(y.dtype)).view(y.shape) for y in outputs
        ]
        for label, lay_out in COTANGENTS.items():
            laid_out = [lay_out(dy) for dy in random]
            dense = [dy.clone(memory_format=torch.contiguous_format) for dy in laid_out]
            found, wanted = (
                torch.autograd.grad(outputs, tensors, dys, retain_graph=True, allow_unused=True)
                for dys in (laid_out, dense)
            )
            for one, other in zip(found, wanted, strict=True):
                assert (one is None) == (other is None), label
                # PyTorch's sums depend on the layout in their last bits, the kernels' do not.
                exact = {} if implementation == "reference" else {"rtol": 0, "atol": 0}
                if one is not None:
                    torch.testing.assert_close(one, other, **exact, msg=label)


def gradients(op, implementation, frozen=()):
    """Of the first case, but for the inputs with these numbers; and the emulated launches."""
    function, tensors = call(op, every=True)
    for number in frozen:
        tensors[number].requires_grad_(False)
    wanted = [x for x in tensors if x.requires_grad]
    with running(implementation, seed=1, count=True) as session:
        outputs = function(*tensors)
        before = 0 if session is None else len(session.launches)
        dys = [torch.ones_like(y) for y in outputs]
        found = iter(torch.autograd.grad(outputs, wanted, dys, allow_unused=True))
    launches = [] if session is None else session.launches[before:]
    return [next(found) if x.requires_grad else None for x in tensors], launches


def stored(launches):
    return sum(each.counters.global_store_sectors for each in launches)


@pytest.mark.parametrize(("op", "implementation"), implementations())
def test_gradients_that_nobody_needs_are_not_computed(op, implementation):
    every, launches = gradients(op, implementation)
    differentiable = [i for i, each in enumerate(every) if each is not None]
    for i in differentiable if len(differentiable) > 1 else ():
        found, fewer = gradients(op, implementation, frozen=set(range(len(every))) - {i})
        assert torch.equal(found[i], every[i])
        assert stored(fewer) < stored(launches) or not launches, f"input {i}"


@pytest.mark.skipif(DEVICE.type != "cpu", reason="launches are listed by the emulator")
@pytest.mark.parametrize("op", ["rms_norm", "add_rms_norm", "layer_norm", "add_layer_norm"])
def test_frozen_parameters_have_no_sums(op):
    args, op = arguments(ops()[op].cases()[0], torch.float32), ops()[op]
    rows = 2 if op.name.startswith("add") else 1
    frozen = range(rows, sum(isinstance(each, torch.Tensor) for each in args))
    _, launches = gradients(op, "cuda", frozen)
    assert [each.kernel for each in launches] == [f"{op.name.removeprefix('add_')}_backward_f32_aligned"]
