"""rms_norm against PyTorch's own function; test_every_op.py and test_in_programs.py have the rest."""

import pytest
import torch
import torch.nn.functional as F

from titan_kernels import explain
from titan_kernels.ops import rms_norm
from titan_kernels.testing import DEVICE, running

EPS = 1e-5


def tensors(*shape, dtype=torch.float64):
    """x, residual and weight that require gradients."""
    generator = torch.Generator().manual_seed(0)
    made = [torch.randn(each, generator=generator, dtype=dtype) for each in (shape, shape, shape[-1:])]
    return [each.to(DEVICE).requires_grad_() for each in made]


def gradients(outputs, inputs):
    weights = [torch.cos(torch.arange(y.numel(), device=y.device)).view(y.shape).to(y.dtype) for y in outputs]
    return torch.autograd.grad(outputs, inputs, weights)


@pytest.mark.parametrize("shape", [(5, 33), (2, 3, 8), (7,), (0, 6)])
def test_reference_is_pytorchs_function(shape):
    x, _, weight = tensors(*shape)
    ours, theirs = rms_norm(x, weight, eps=EPS), F.rms_norm(x, shape[-1:], weight, EPS)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    pairs = zip(gradients([ours], [x, weight]), gradients([theirs], [x, weight]), strict=True)
    for mine, other in pairs:
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-10)


def test_gradients_agree_with_differences():
    x, residual, weight = tensors(3, 7)
    assert torch.autograd.gradcheck(rms_norm, (x, weight))
    assert torch.autograd.gradcheck(rms_norm, (x,))
    assert torch.autograd.gradcheck(lambda x, r, w: rms_norm(x, w, residual=r), (x, residual, weight))


@pytest.mark.parametrize("implementation", ["cuda", "triton", "reference"])
@pytest.mark.parametrize("columns", [64, 97])
def test_residual_is_two_separate_steps(implementation, columns):
    x, residual, weight = tensors(4, columns, dtype=torch.float32)
    with running(implementation, seed=1):
        y, total = rms_norm(x, weight, residual=residual)
        fused = gradients([y, total], [x, residual, weight])
        separate_total = x + residual
        separate = rms_norm(separate_total, weight)
        apart = gradients([separate, separate_total], [x, residual, weight])
    torch.testing.assert_close(total, separate_total, rtol=0, atol=0)
    torch.testing.assert_close(y, separate, rtol=0, atol=0)
    for mine, other in zip(fused, apart, strict=True):
        torch.testing.assert_close(mine, other)


def test_only_the_sum_is_used():
    x, residual, weight = tensors(4, 8)
    _, total = rms_norm(x, weight, residual=residual)
    assert gradients([total], [x])[0].equal(gradients([x + residual], [x])[0])


def test_gradient_of_the_weight_is_the_same_every_time():
    x, _, weight = tensors(700, 65, dtype=torch.float32)
    seen = []
    for seed in (1, 2):
        with running("cuda", seed=seed):
            seen.append(gradients([rms_norm(x, weight)], [weight])[0])
    assert seen[0].equal(seen[1])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((torch.ones(()),), r"x \(torch.float32, shape \(\)\): it needs floating-point rows"),
        ((torch.ones(2, 3, dtype=torch.int64),), "floating-point rows"),
        ((torch.ones(2, 3), torch.ones(2)), r"weight \(shape \(2,\)\): it must have the shape \(3,\)"),
        (
            (torch.ones(2, 3), torch.ones(3).half()),
            r"weight \(torch.float16\): .*x \(torch.float32\)",
        ),
        ((torch.ones(2, 3), torch.ones(3, dtype=torch.int64)), r"weight \(torch.int64\)"),
    ],
)
def test_errors(arguments, words):
    with pytest.raises(ValueError, match=words):
        rms_norm(*arguments)


def test_residual_must_be_like_x():
    with pytest.raises(ValueError, match=r"residual \(torch.float16, shape \(2, 3\)\): it must be like x"):
        rms_norm(torch.ones(2, 3), residual=torch.ones(2, 3, dtype=torch.float16))


def test_long_rows_are_left_to_the_others():
    verdicts = dict(explain("rms_norm", torch.ones(1, 20000), None, EPS).verdicts)
    assert not verdicts["cuda"].ok
    with running("reference"):
        assert rms_norm(torch.ones(1, 20000)).shape == (1, 20000)
