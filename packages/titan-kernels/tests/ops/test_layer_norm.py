"""layer_norm against PyTorch's own function."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from titan_kernels import emulated, explain
from titan_kernels.ops import layer_norm
from titan_kernels.testing import DEVICE, running

IMPLEMENTATIONS = pytest.mark.parametrize("implementation", ["cuda", "triton", "reference"])


def tensors(*shape, dtype=torch.float64):
    """x, residual, weight and bias that require gradients."""
    generator = torch.Generator().manual_seed(0)
    shapes = (shape, shape, shape[-1:], shape[-1:])
    made = (torch.randn(each, generator=generator, dtype=torch.float64) for each in shapes)
    return [each.to(DEVICE, dtype).requires_grad_() for each in made]


def grads(outputs, inputs):
    weights = [torch.cos(torch.arange(y.numel(), device=y.device)).view(y.shape).to(y.dtype) for y in outputs]
    return torch.autograd.grad(outputs, inputs, weights)


@pytest.mark.parametrize("shape", [(5, 33), (2, 3, 8), (7,), (0, 6)])
def test_reference_is_pytorchs_function(shape):
    x, _, weight, bias = tensors(*shape)
    ours, theirs = layer_norm(x, weight, bias), F.layer_norm(x, shape[-1:], weight, bias)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    for mine, other in zip(grads([ours], [x, weight, bias]), grads([theirs], [x, weight, bias]), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-10)


def test_gradients_agree_with_differences():
    x, residual, weight, bias = tensors(3, 7)
    assert torch.autograd.gradcheck(layer_norm, (x, weight, bias))
    assert torch.autograd.gradcheck(layer_norm, (x,))
    assert torch.autograd.gradcheck(
        lambda x, r, w, b: layer_norm(x, w, b, residual=r), (x, residual, weight, bias)
    )


@IMPLEMENTATIONS
@pytest.mark.parametrize("columns", [64, 97])
def test_residual_is_two_separate_steps(implementation, columns):
    x, residual, weight, bias = tensors(4, columns, dtype=torch.float32)
    with running(implementation, seed=1):
        y, total = layer_norm(x, weight, bias, residual=residual)
        fused = grads([y, total], [x, residual, weight, bias])
        separate_total = x + residual
        separate = layer_norm(separate_total, weight, bias)
        apart = grads([separate, separate_total], [x, residual, weight, bias])
    torch.testing.assert_close(total, separate_total, rtol=0, atol=0)
    torch.testing.assert_close(y, separate, rtol=0, atol=0)
    for mine, other in zip(fused, apart, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-6, atol=1e-6)


def test_only_the_sum_is_used():
    x, residual, weight, bias = tensors(4, 16)
    _, total = layer_norm(x, weight, bias, residual=residual)
    dx, dresidual = torch.autograd.grad(total.sum(), [x, residual])
    torch.testing.assert_close(dx, torch.ones_like(x))
    torch.testing.assert_close(dresidual, torch.ones_like(x))


@IMPLEMENTATIONS
@pytest.mark.parametrize("columns", [1024, 1023])
def test_deviation_survives_a_large_mean(implementation, columns):
    """The mean of squares less the square of the mean has no correct digit here."""
    x = tensors(3, columns, dtype=torch.float32)[0].detach() + 20000.0
    exact = F.layer_norm(x.double(), (columns,), eps=1e-5)
    with running(implementation, seed=1):
        y = layer_norm(x)
    torch.testing.assert_close(y.double(), exact, rtol=0, atol=4e-3)  # two units of a mean in fp32


@IMPLEMENTATIONS
@pytest.mark.parametrize("columns", [96, 99])
def test_fp32_parameters_of_half_precision_rows(implementation, columns):
    x, _, weight, bias = tensors(5, columns, dtype=torch.float32)
    x = x.detach().half().requires_grad_()
    with running(implementation, seed=1):
        y = layer_norm(x, weight, bias)
        dx, dweight, dbias = grads([y], [x, weight, bias])
    exact = F.layer_norm(x.double(), (columns,), weight.double(), bias.double())
    wanted = grads([exact], [x, weight, bias])
    assert (y.dtype, dx.dtype, dweight.dtype, dbias.dtype) == (torch.float16,) * 2 + (torch.float32,) * 2
    torch.testing.assert_close(y, exact.half())
    torch.testing.assert_close(dx, wanted[0], rtol=2e-3, atol=2e-3)
    # dy is rounded to fp16 on its way to the parameters.
    torch.testing.assert_close((dweight, dbias), tuple(wanted[1:]), rtol=1e-3, atol=2e-3)


@IMPLEMENTATIONS
def test_no_rows_leave_parameters_without_gradient(implementation):
    x, _, weight, bias = tensors(0, 24, dtype=torch.float32)
    with running(implementation, seed=1):
        dweight, dbias = torch.autograd.grad(layer_norm(x, weight, bias).sum(), [weight, bias])
    assert not dweight.any()
    assert not dbias.any()


@IMPLEMENTATIONS
def test_statistics_may_lie_anywhere(implementation):
    """As those that come back from an offloaded activation."""
    x, dy, weight, bias = (each.detach() for each in tensors(5, 40, dtype=torch.float32))
    _, statistics = torch.ops.titan.layer_norm(x, weight, bias, 1e-5)
    moved = torch.cat((statistics.new_zeros(1), statistics.flatten()))[1:].view(5, 2)
    with running(implementation, seed=1):
        found = [
            torch.ops.titan.layer_norm_backward(dy, x, weight, bias, each, None, [True] * 3)
            for each in (statistics, moved)
        ]
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize(("columns", "reason"), [(8200, "longer than 8192"), (8191, "no whole vectors")])
def test_cuda_says_which_rows_it_leaves(columns, reason):
    x = torch.ones(2, columns, device=DEVICE)
    with contextlib.nullcontext() if DEVICE.type == "cuda" else emulated():
        explanation = explain("layer_norm", x, None, None, 1e-5)
    assert reason in dict(explanation.verdicts)["cuda"].reason
    assert explanation.chosen != "cuda"


def test_compiles_whole_and_survives_checkpointing():
    x, residual, weight, bias = tensors(4, 64, dtype=torch.float32)

    def block(x, residual, weight, bias):
        y, total = layer_norm(x, weight, bias, residual=residual)
        return layer_norm(y + total, weight)

    inputs = [x, residual, weight, bias]
    expected = grads([block(*inputs)], inputs)
    for wrapped in (
        torch.compile(block, fullgraph=True, backend="aot_eager"),
        lambda *args: checkpoint(block, *args, use_reentrant=False),
    ):
        torch.testing.assert_close(grads([wrapped(*inputs)], inputs), expected, rtol=0, atol=0)


def test_autocast_leaves_the_dtype_alone():
    x, _, weight, bias = tensors(4, 16, dtype=torch.float32)
    with torch.autocast(DEVICE.type, torch.bfloat16):
        assert layer_norm(x, weight, bias).dtype == torch.float32
        assert layer_norm(x.bfloat16(), weight, bias).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": torch.ones(())}, "floating-point rows"),
        ({"x": torch.ones(3, dtype=torch.int64)}, "floating-point rows"),
        ({"weight": torch.ones(5)}, r"weight \(shape \(5,\)\): it must have the shape \(4,\)"),
        ({"bias": torch.ones(1, 4)}, r"bias \(shape \(1, 4\)\): it must have the shape \(4,\)"),
        ({"bias": torch.ones(4).half()}, r"bias \(torch.float16\): it must have the dtype of x"),
        ({"residual": torch.ones(4)}, r"residual \(torch.float32, shape \(4,\)\): it must be like x"),
    ],
)
def test_arguments_that_do_not_fit(arguments, message):
    with pytest.raises(ValueError, match=message):
        layer_norm(**{"x": torch.ones(3, 4)} | arguments)
