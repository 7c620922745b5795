"""Norms and casts of lists of tensors against plain loops."""

import numpy as np
import pytest
import torch

from titan_kernels.ops import multi_tensor_cast, multi_tensor_norm
from titan_kernels.testing import DEVICE, running

IMPLEMENTATIONS = pytest.mark.parametrize("implementation", ["cuda", "reference"])
FLOATS = (torch.float16, torch.bfloat16, torch.float32)


def normal(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(DEVICE, dtype)


def gradients(dtype=torch.float32):
    shapes = (40, 33), (7,), (), (3, 0), (70000,)
    return [normal(*shape, dtype=dtype, seed=i) for i, shape in enumerate(shapes)]


@IMPLEMENTATIONS
def test_norm_is_pytorchs(implementation):
    tensors = [*gradients(), *gradients(torch.float16), *gradients(torch.bfloat16)]
    with running(implementation, seed=1):
        norm, found, each = multi_tensor_norm(tensors, per_tensor=True)
    exact = torch.cat([x.double().flatten() for x in tensors]).norm()
    assert norm.item() == pytest.approx(exact.item(), rel=1e-6)
    assert found.item() == 0.0
    assert (norm.shape, norm.dtype, found.shape, found.dtype) == ((), torch.float32) * 2
    torch.testing.assert_close(each, torch.stack([x.double().norm() for x in tensors]).float())


def test_norm_is_that_of_clip_grad_norm():
    parameters = [torch.nn.Parameter(x) for x in gradients()]
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter) * 0.5
    norm, _ = multi_tensor_norm([parameter.grad for parameter in parameters])
    torch.testing.assert_close(norm, torch.nn.utils.clip_grad_norm_(parameters, 1.0))


@IMPLEMENTATIONS
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan")])
@pytest.mark.parametrize("place", [0, 1, 40000, 69999])
def test_any_element_that_is_not_finite_is_found(implementation, dtype, value, place):
    tensors = gradients(dtype)
    tensors[-1][place] = value
    with running(implementation, seed=1):
        norm, found, each = multi_tensor_norm(tensors, per_tensor=True)
    assert found.item() == 1.0
    assert not torch.isfinite(norm)
    assert torch.isfinite(each).tolist() == [True] * 4 + [False]


@IMPLEMENTATIONS
def test_large_finite_elements_are_not_taken_for_overflow(implementation):
    with running(implementation, seed=1):
        norm, found = multi_tensor_norm([torch.full((5,), 65504.0, device=DEVICE, dtype=torch.float16)])
        assert (norm.item(), found.item()) == (pytest.approx(65504 * 5**0.5), 0.0)
        norm, found = multi_tensor_norm([torch.full((5,), 1e30, device=DEVICE)])
        assert (norm.item(), found.item()) == (float("inf"), 0.0)


def test_order_and_schedule_of_blocks_do_not_matter():
    tensors = [*gradients(torch.float16), *gradients()]
    seen = []
    for schedule in (1, 2):
        with running("cuda", seed=schedule):
            seen.append(torch.stack(multi_tensor_norm(tensors)))
    assert torch.equal(*seen)


def test_without_tensors_there_is_nothing():
    assert [x.item() for x in multi_tensor_norm([])] == [0.0, 0.0]
    assert multi_tensor_norm([], per_tensor=True)[2].shape == (0,)
    multi_tensor_cast([], [])


def test_norm_needs_no_gradient():
    norm, found = multi_tensor_norm([torch.ones(3, device=DEVICE, requires_grad=True)])
    assert not norm.requires_grad
    assert not found.requires_grad


@IMPLEMENTATIONS
@pytest.mark.parametrize("to", FLOATS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_cast_rounds_as_pytorch_does(implementation, dtype, to):
    sources = [x * 100 for x in gradients(dtype)]
    targets = [torch.full_like(x, float("nan"), dtype=to) for x in sources]
    with running(implementation, seed=1):
        multi_tensor_cast(sources, targets)
    for source, target in zip(sources, targets, strict=True):
        assert torch.equal(target, source.to(to))


@IMPLEMENTATIONS
@pytest.mark.parametrize("scale", [0.125, np.float32(0.125), torch.tensor(0.125), torch.tensor([0.125])])
def test_scale_comes_before_the_rounding(implementation, scale):
    scale = scale.to(DEVICE) if isinstance(scale, torch.Tensor) else scale
    source = torch.tensor([65536.0 * 4, 2.0**-20, 1.0, float("inf")], device=DEVICE)
    target = torch.empty(4, device=DEVICE, dtype=torch.float16)
    with running(implementation, seed=1):
        multi_tensor_cast([source], [target], scale)
    assert torch.equal(target, (source / 8).half())
    assert target[0] == 32768.0


@IMPLEMENTATIONS
def test_unscaling_in_place(implementation):
    tensors = gradients(torch.float16)
    expected = [x / 4 for x in tensors]
    with running(implementation, seed=1):
        multi_tensor_cast(tensors, tensors, 0.25)
    assert all(torch.equal(x, y) for x, y in zip(tensors, expected, strict=True))


@IMPLEMENTATIONS
def test_any_strides(implementation):
    base = normal(8, 9)
    sources = [base.t(), base.t(), base[:, ::2], base.t()[1:], normal(5, 1).expand(5, 4)]
    targets = [
        torch.zeros(8, 9, device=DEVICE).t(), torch.zeros(9, 8, device=DEVICE),
        torch.zeros(8, 5, device=DEVICE), torch.zeros(8, 16, device=DEVICE)[:, ::2],
        torch.zeros(5, 8, device=DEVICE)[:, 4:],
    ]  # fmt: skip
    with running(implementation, seed=1):
        multi_tensor_cast(sources, targets)
    for source, target in zip(sources, targets, strict=True):
        assert torch.equal(source, target)


def test_each_byte_is_read_and_written_once():
    if DEVICE.type != "cpu":
        pytest.skip("counts come from the emulator")
    sources = [normal(1000, 64, dtype=torch.float16), normal(40000, dtype=torch.float16)]
    targets = [x.float() for x in sources]
    elements = sum(x.numel() for x in sources)
    with running("cuda", count=True) as session:
        multi_tensor_cast(sources, targets, 2.0)
        (cast,) = session.launches
        multi_tensor_norm(sources)
    assert cast.counters.global_load_sectors == elements * 2 / 32
    assert cast.counters.global_store_sectors == elements * 4 / 32
    assert [launch.kernel for launch in session.launches[1:]] == [
        "multi_tensor_norm_f16",
        "multi_tensor_norm_total",
    ]
    assert session.launches[1].counters.global_load_sectors == elements * 2 / 32


def test_launches_are_few():
    if DEVICE.type != "cpu":
        pytest.skip("only the emulator counts launches")
    tensors = [normal(4) for _ in range(401)]
    with running("cuda", seed=1) as session:
        norm, _ = multi_tensor_norm(tensors)
        assert len(session.launches) == 3 + 1
        multi_tensor_cast(tensors, [x.half() for x in tensors])
        assert len(session.launches) == 3 + 1 + 3
    assert norm.item() == pytest.approx(401**0.5 * normal(4).norm().item())


def test_autograd_knows_that_targets_changed():
    weight = torch.ones(3, device=DEVICE, requires_grad=True)
    saved = torch.ones(3, device=DEVICE)
    product = weight * saved
    multi_tensor_cast([torch.zeros(3, device=DEVICE)], [saved])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_parameters_can_be_targets_without_gradients():
    parameter = torch.nn.Parameter(torch.zeros(3, device=DEVICE))
    with torch.no_grad():
        multi_tensor_cast([torch.ones(3, device=DEVICE).half()], [parameter])
    assert torch.equal(parameter.detach(), torch.ones(3, device=DEVICE))


def test_compiles_whole():
    def step(gradients, masters, scale):
        norm, found = multi_tensor_norm(gradients)
        multi_tensor_cast(gradients, masters, scale)
        return norm, found

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    sources, scale = gradients(torch.float16), torch.tensor(0.5, device=DEVICE)
    results = []
    for run in (step, compiled):
        targets = [torch.zeros_like(x, dtype=torch.float32) for x in sources]
        results.append([*run(sources, targets, scale), *targets])
    for first, second in zip(*results, strict=True):
        assert torch.equal(first, second)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ([torch.ones(3)], [torch.ones(4)]),
            r"targets \(\(4,\)\): .* shapes of sources \(\(3,\)\)",
        ),
        (([torch.ones(3)], []), r"targets \(\): they must have the shapes"),
        (
            ([torch.ones(3).long()], [torch.ones(3)]),
            r"sources \(number 0: torch.int64\)",
        ),
        (([torch.ones(3)], [torch.ones(3, device="meta")]), r"\(on cpu, meta\): they must be on one device"),
        (
            ([torch.ones(3)], [torch.ones(3)], torch.ones(2)),
            r"scale \(.*\(2,\)\): it must be one",
        ),
        (([torch.ones(3)], [torch.ones(3, requires_grad=True)]), r"require gradients.*torch.no_grad\(\)"),
        (([torch.ones(3)], [torch.ones(3)], torch.ones((), requires_grad=True)), "scale require gradients"),
        (([torch.ones(3)], [torch.ones(3)], "2"), r"scale \('2'\): it must be a number"),
    ],
)
def test_arguments_that_do_not_fit(arguments, message):
    with pytest.raises(ValueError, match=message):
        multi_tensor_cast(*arguments)


def test_norm_of_integers_is_refused():
    with pytest.raises(ValueError, match=r"tensors \(number 1: torch.int32\): they must be floating point"):
        multi_tensor_norm([torch.ones(2), torch.ones(2, dtype=torch.int32)])
