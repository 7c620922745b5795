"""rope and rope_qk against the formulas of Llama and GPT-J, and their rules for gradients in place."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from titan_kernels.errors import UnsupportedError
from titan_kernels.ops import rope, rope_qk
from titan_kernels.testing import DEVICE, running

B, T, H, D = 2, 5, 3, 8
IMPLEMENTATIONS = pytest.mark.parametrize("implementation", ["cuda", "triton", "reference"])
PAIRINGS = pytest.mark.parametrize("interleaved", [False, True], ids=["half", "interleaved"])


def normal(*shape, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(DEVICE, dtype)


def tables(rows=T, pairs=D // 2, dtype=torch.float32):
    angles = torch.arange(rows, dtype=torch.float64)[:, None] * 100.0 ** -(torch.arange(pairs) / pairs)
    return angles.cos().to(DEVICE, dtype), angles.sin().to(DEVICE, dtype)


def rotate_half(x, cos, sin):
    """Hugging Face's Llama, for (B, T, H, D)."""
    cos, sin = (torch.cat((each, each), -1)[None, :, None] for each in (cos, sin))
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def complex_product(x, cos, sin):
    """The original formulation: neighbours are real and imaginary part."""
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.complex(cos, sin)[None, :, None]).flatten(-2)


@pytest.mark.parametrize(
    ("interleaved", "formula"), [(False, rotate_half), (True, complex_product)], ids=["half", "interleaved"]
)
def test_reference_is_the_known_formula(interleaved, formula):
    x, (cos, sin) = normal(B, T, H, D, dtype=torch.float64), tables(dtype=torch.float64)
    torch.testing.assert_close(rope(x, cos, sin, interleaved=interleaved), formula(x, cos, sin))


@PAIRINGS
def test_gradients_agree_with_differences(interleaved):
    q, k = normal(1, T, 2, D, dtype=torch.float64), normal(1, T, 1, D, dtype=torch.float64, seed=1)
    arguments = tables(pairs=3, dtype=torch.float64)

    def out_of_place(q, k):
        return rope_qk(q, k, *arguments, interleaved=interleaved)

    def in_place(q, k):
        return rope_qk(q * 1.0, k * 1.0, *arguments, interleaved=interleaved, inplace=True)

    for function in (out_of_place, in_place):
        inputs = q.clone().requires_grad_(), k.clone().requires_grad_()
        assert torch.autograd.gradcheck(function, inputs)
        assert torch.autograd.gradgradcheck(function, inputs)


@IMPLEMENTATIONS
@PAIRINGS
def test_partial_rotation_leaves_the_rest_alone(implementation, interleaved):
    x, (cos, sin) = normal(B, T, H, D, dtype=torch.bfloat16), tables(pairs=2)
    with running(implementation, seed=1):
        y = rope(x, cos, sin, interleaved=interleaved)
        again = rope(x.clone(), cos, sin, interleaved=interleaved, inplace=True)
    torch.testing.assert_close(y[..., 4:], x[..., 4:], rtol=0, atol=0)
    turned = rope(x[..., :4], cos, sin, interleaved=interleaved)
    torch.testing.assert_close(y[..., :4], turned, rtol=2e-2, atol=1e-2)
    torch.testing.assert_close(y, again, rtol=0, atol=0)


@IMPLEMENTATIONS
@pytest.mark.parametrize("inplace", [False, True])
def test_layouts_differ_in_strides_only(implementation, inplace):
    x, (cos, sin) = normal(B, H, T, D), tables()
    expected = rope(x.transpose(1, 2), cos, sin).transpose(1, 2)
    with running(implementation, seed=1):
        y = rope(x, cos, sin, layout="bhtd", inplace=inplace)
    torch.testing.assert_close(y, expected)
    assert y.is_contiguous()


@IMPLEMENTATIONS
def test_positions_choose_the_rows(implementation):
    x, (cos, sin) = normal(2, 4, H, D), tables(rows=9)
    positions = torch.tensor([[0, 1, 0, 1], [5, 6, 7, 8]], device=DEVICE)
    with running(implementation, seed=1):
        packed = rope(x, cos, sin, positions=positions)
        shared = rope(x, cos, sin, positions=positions[1].to(torch.int32))
        pieces = [rope(x[:1, i : i + 2], cos, sin) for i in (0, 2)]
    torch.testing.assert_close(packed[:1], torch.cat(pieces, 1))
    torch.testing.assert_close(packed[1:], rope(x[1:], cos[5:], sin[5:]))
    torch.testing.assert_close(shared[1:], packed[1:])


@IMPLEMENTATIONS
def test_positions_outside_the_tables_are_nan(implementation):
    x, (cos, sin) = normal(1, 4, H, D), tables(rows=3)
    with running(implementation, seed=1):
        y = rope(x, cos, sin, positions=torch.tensor([-1, 0, 2, 3], device=DEVICE))
    assert y.isnan().flatten(2).all(-1).tolist() == [[True, False, False, True]]


def test_queries_and_keys_take_one_launch_each_way():
    qkv, (cos, sin) = normal(B, T, 4, D).requires_grad_(), tables()
    with running("cuda", seed=1) as session:
        q, k = rope_qk(qkv[:, :, :2], qkv[:, :, 2:3], cos, sin)
        (q.sum() + k.sum()).backward()
        if session is not None:
            assert len(session.launches) == 2
    expected = torch.autograd.grad(rope(qkv[:, :, :3], cos, sin).sum(), qkv)[0]
    torch.testing.assert_close(qkv.grad, expected)


def test_only_the_gradients_that_exist_are_rotated():
    q, k = normal(B, T, H, D).requires_grad_(), normal(B, T, 1, D).requires_grad_()
    rotated = rope_qk(q, k, *tables())
    torch.autograd.grad(rotated[1].sum(), k)
    assert torch.autograd.grad(rope_qk(q, k, *tables())[1].sum(), q, allow_unused=True)[0] is None


@IMPLEMENTATIONS
def test_in_place_on_views_of_a_projection(implementation):
    weight, (cos, sin) = normal(B, T, 4, D).requires_grad_(), tables()
    scale = normal(B, T, 4, D, seed=1)

    def loss(inplace):
        qkv = weight * 2.0
        q, k = rope_qk(qkv[:, :, :2], qkv[:, :, 2:3], cos, sin, inplace=inplace)
        whole = qkv if inplace else torch.cat((q, k, qkv[:, :, 3:]), 2)
        return (whole * scale).sum()

    with running(implementation, seed=1):
        (grad,) = torch.autograd.grad(loss(inplace=True), weight)
        (expected,) = torch.autograd.grad(loss(inplace=False), weight)
    torch.testing.assert_close(grad, expected)


def test_in_place_follows_the_rules_of_autograd():
    leaf, (cos, sin) = normal(B, T, H, D).requires_grad_(), tables()
    values = leaf.detach().clone()
    for x in (leaf, leaf[:, :, :2]):
        with pytest.raises(UnsupportedError, match="leaf"):
            rope(x, cos, sin, inplace=True)
    torch.testing.assert_close(leaf.detach(), values, rtol=0, atol=0)
    with torch.no_grad():
        before = leaf.clone()
        assert rope(leaf, cos, sin, inplace=True) is leaf
        torch.testing.assert_close(leaf, rope(before, cos, sin))
    squared = leaf.exp()  # saves its output
    rope(squared, cos, sin, inplace=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        squared.sum().backward()


def test_in_place_with_one_gradient():
    q, k = normal(B, T, H, D).requires_grad_() * 1.0, normal(B, T, 1, D, seed=1)
    expected = rope_qk(q, k, *tables())
    rotated = rope_qk(q, k, *tables(), inplace=True)
    torch.testing.assert_close(rotated, expected)
    assert rotated[0].grad_fn is not None
    assert not rotated[1].requires_grad


@pytest.mark.parametrize("inplace", [False, True])
def test_compiles_whole_and_survives_checkpointing(inplace):
    cos, sin = tables()

    def block(x):
        q, k = rope_qk(x * 2.0, x[:, :, :1] * 3.0, cos, sin, inplace=inplace)
        return (q * q).sum() + (k * x[:, :, :1]).sum()

    x = normal(B, T, H, D).requires_grad_()
    (expected,) = torch.autograd.grad(block(x), x)
    for wrapped in (
        torch.compile(block, fullgraph=True, backend="aot_eager"),
        lambda x: checkpoint(block, x, use_reentrant=False),
    ):
        torch.testing.assert_close(torch.autograd.grad(wrapped(x), x)[0], expected)


def test_all_that_is_wrong_is_said_at_once():
    q, k = torch.ones(B, T, H, D), torch.ones(B, T + 1, H, D)
    cos, sin = torch.ones(T - 1, D // 2, dtype=torch.float16), torch.ones(T, D).requires_grad_()
    with pytest.raises(ValueError) as caught:
        rope_qk(q, k, cos, sin, positions=torch.ones(T))
    for part in ("k (torch.float32, shape (2, 6, 3, 8)): it must be like q", "cos (torch.float16",
                 "sin (torch.float32, shape (5, 8)): it must be (positions, pairs), with at most 4 pairs",
                 "sin requires a gradient", "positions (torch.float32"):  # fmt: skip
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        (torch.ones(B, T, D), {}, r"x .*\(B, T, H, D\) with an even D"),
        (torch.ones(B, T, H, 7), {}, "even D"),
        (torch.ones(B, H, T + 1, D), {"layout": "bhtd"}, "fewer rows than positions, 6"),
        (torch.ones(B, T, H, D), {"layout": "bdht"}, r"layout \('bdht'\): it must be 'bthd' or 'bhtd'"),
        (torch.ones(B, T, H, D), {"positions": torch.arange(T + 1)}, r"\(5,\) or \(2, 5\)"),
    ],
)
def test_arguments_that_do_not_fit(x, options, message):
    with pytest.raises(ValueError, match=message):
        rope(x, *(each.cpu() for each in tables()), **options)
