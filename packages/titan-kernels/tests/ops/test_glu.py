"""swiglu, geglu and relu2 against PyTorch's own activations."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from titan_kernels.ops import geglu, relu2, swiglu
from titan_kernels.testing import DEVICE, running

GATED = {
    "swiglu": (swiglu, F.silu),
    "geglu": (geglu, lambda x: F.gelu(x, approximate="tanh")),
    "geglu-erf": (lambda *x: geglu(*x, approximate="none"), F.gelu),
}
gated = pytest.mark.parametrize(("function", "activation"), GATED.values(), ids=GATED)
IMPLEMENTATIONS = pytest.mark.parametrize("implementation", ["cuda", "triton", "reference"])


def pair(*shape, dtype=torch.float64, scale=3.0):
    generator = torch.Generator().manual_seed(0)
    made = (torch.randn(*shape, generator=generator, dtype=torch.float64) for _ in range(2))
    return [(scale * x).to(DEVICE, dtype).requires_grad_() for x in made]


@gated
def test_reference_is_pytorchs_function(function, activation):
    gate, up = pair(5, 33)
    ours, theirs = function(gate, up), activation(gate) * up
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    for mine, other in zip(
        torch.autograd.grad(ours.sum(), (gate, up)),
        torch.autograd.grad(theirs.sum(), (gate, up)),
        strict=True,
    ):
        torch.testing.assert_close(mine, other, rtol=1e-12, atol=1e-12)


def test_relu2_reference_is_pytorchs_function():
    x, _ = pair(5, 33)
    torch.testing.assert_close(relu2(x), F.relu(x).square())
    (grad,) = torch.autograd.grad(relu2(x).sum(), x)
    torch.testing.assert_close(grad, 2 * F.relu(x))


@gated
def test_gradients_agree_with_differences(function, activation):
    gate, up = pair(2, 6)
    assert torch.autograd.gradcheck(function, (gate, up))
    assert torch.autograd.gradcheck(function, (gate,))  # packed
    assert torch.autograd.gradcheck(relu2, (gate,))


@IMPLEMENTATIONS
@gated
def test_packed_is_the_pair(implementation, function, activation):
    packed = pair(3, 2 * 40, dtype=torch.float32)[0]
    with running(implementation, seed=1):
        together, apart = function(packed), function(*packed.chunk(2, dim=-1))
        torch.testing.assert_close(together, apart, rtol=0, atol=0)
        dy = torch.randn_like(together)
        grads = [torch.autograd.grad(y, packed, dy)[0] for y in (together, apart)]
    torch.testing.assert_close(*grads, rtol=0, atol=0)
    assert grads[0].is_contiguous()


@IMPLEMENTATIONS
@gated
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_huge_gates_give_what_pytorch_gives(implementation, function, activation, dtype):
    values = [0.0, 30.0, -30.0, 100.0, -100.0, 1e4, -1e4, float("nan")]
    gate = torch.tensor(values, device=DEVICE).to(dtype).requires_grad_()
    up = torch.ones_like(gate)
    with running(implementation, seed=1):
        y = function(gate, up)
        (grad,) = torch.autograd.grad(y.sum(), gate)
    theirs = activation(gate.detach().float().requires_grad_())
    torch.testing.assert_close(y, theirs.to(dtype), equal_nan=True)
    wide = gate.detach().double().requires_grad_()
    finite = torch.isfinite(wide)
    (exact,) = torch.autograd.grad(activation(wide).sum(), wide)
    torch.testing.assert_close(grad[finite], exact[finite].to(dtype))


@IMPLEMENTATIONS
def test_relu2_keeps_nan_and_overflows_like_pytorch(implementation):
    x = torch.tensor([float("nan"), -float("inf"), -0.0, 1e4, -1e4], device=DEVICE, dtype=torch.float16)
    with running(implementation, seed=1):
        torch.testing.assert_close(relu2(x), F.relu(x).square(), equal_nan=True)


def test_tails_keep_their_digits():
    x = torch.linspace(-9.0, -2.0, 200, device=DEVICE)
    one = torch.ones_like(x)
    for function, activation in GATED.values():
        with running("cuda", seed=1):
            y = function(x, one)
        torch.testing.assert_close(y.double(), activation_in_decimals(activation, x), rtol=3e-5, atol=0)


def activation_in_decimals(activation, x):
    """gelu's own formulas cancel in the tail, in float64 too, so 1 + tanh and 1 + erf are taken apart."""
    x = x.double()
    if activation is F.silu:
        return x * torch.sigmoid(x)
    if activation is F.gelu:
        return x * 0.5 * torch.special.erfc(-x / 2**0.5)
    return x * torch.sigmoid(2 * (2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))


def test_compiles_whole_and_survives_checkpointing():
    def block(x):
        return relu2(swiglu(x)) + geglu(x, approximate="none")

    x = pair(4, 64, dtype=torch.float32)[0]
    expected = torch.autograd.grad(block(x).sum(), x)[0]
    for wrapped in (
        torch.compile(block, fullgraph=True, backend="aot_eager"),
        lambda x: checkpoint(block, x, use_reentrant=False),
    ):
        torch.testing.assert_close(torch.autograd.grad(wrapped(x).sum(), x)[0], expected, rtol=0, atol=0)


def test_autocast_leaves_the_dtype_alone():
    gate, up = pair(4, 64, dtype=torch.float32)
    with torch.autocast(DEVICE.type, torch.bfloat16):
        assert swiglu(gate, up).dtype == torch.float32


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((torch.ones(3, 4), torch.ones(3, 5)), r"up \(torch.float32, shape \(3, 5\)\): it must be like gate"),
        ((torch.ones(4), torch.ones(4).half()), r"up \(torch.float16.*must be like gate"),
        ((torch.ones(3, 5),), r"gate \(shape \(3, 5\)\): without up it must hold two halves"),
        ((torch.ones(()), torch.ones(())), "floating-point rows"),
        ((torch.ones(4, dtype=torch.int64),), "floating-point rows"),
    ],
)
def test_arguments_that_do_not_fit(arguments, message):
    with pytest.raises(ValueError, match=message):
        swiglu(*arguments)


def test_unknown_approximation():
    with pytest.raises(ValueError, match=r"approximate \('erf'\): it must be 'tanh' or 'none'"):
        geglu(torch.ones(4), approximate="erf")
    with pytest.raises(ValueError, match="floating point"):
        relu2(torch.ones(4, dtype=torch.int64))
