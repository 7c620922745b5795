"""softmax against PyTorch's own function."""

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from titan_kernels import emulated, explain
from titan_kernels.errors import UnsupportedError
from titan_kernels.ops import softmax
from titan_kernels.ops.softmax.mask import mask_rows
from titan_kernels.testing import DEVICE, running

IMPLEMENTATIONS = pytest.mark.parametrize("implementation", ["cuda", "triton", "reference"])
NAN, INF = float("nan"), float("inf")


def normal(*shape, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(DEVICE, dtype)


def kept(*shape):
    return normal(*shape, seed=1) < 0.5


def grad(y, x):
    dy = torch.cos(torch.arange(y.numel(), device=y.device)).view(y.shape).to(y.dtype)
    return torch.autograd.grad(y, x, dy)[0]


def visible(queries, keys, diagonal):
    return torch.ones(queries, keys, dtype=torch.bool, device=DEVICE).tril(diagonal)


class TestAgainstPyTorch:
    @pytest.mark.parametrize("shape", [(4, 33), (2, 3, 5, 8), (7,), (0, 6), (3, 0)])
    def test_plain(self, shape):
        x = normal(*shape).requires_grad_()
        ours, theirs = softmax(x, scale=0.3), torch.softmax(x * 0.3, -1)
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(grad(ours, x), grad(theirs, x), rtol=1e-12, atol=1e-12)

    @pytest.mark.parametrize(
        ("causal", "diagonal"), [(True, 0), ("top-left", 0), ("bottom-right", 3), (False, 9)]
    )
    def test_causal(self, causal, diagonal):
        x = normal(2, 4, 7).requires_grad_()
        theirs = torch.softmax(x.masked_fill(~visible(4, 7, diagonal), -INF), -1)
        ours = softmax(x, causal=causal)
        torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(grad(ours, x), grad(theirs, x))

    def test_is_causal_of_attention_is_top_left(self):
        q, k, v = normal(2, 3, 4, 8), normal(2, 3, 7, 8, seed=1), normal(2, 3, 7, 8, seed=2)
        ours = softmax(q @ k.mT, scale=8**-0.5, causal=True) @ v
        torch.testing.assert_close(ours, F.scaled_dot_product_attention(q, k, v, is_causal=True))

    @pytest.mark.parametrize("shape", [(2, 1, 1, 6), (5, 6), (2, 3, 5, 1), (6,), (), (1, 3, 1, 6)])
    def test_masks_are_broadcast(self, shape):
        x = normal(2, 3, 5, 6).requires_grad_()
        keep, bias = kept(*shape), normal(*shape, seed=2)
        theirs = torch.softmax((x * 2).masked_fill(~keep, -INF), -1)
        torch.testing.assert_close(softmax(x, scale=2.0, mask=keep), theirs, equal_nan=True)
        added = torch.softmax(x * 2 + bias, -1)
        torch.testing.assert_close(softmax(x, scale=2.0, mask=bias), added)
        torch.testing.assert_close(grad(softmax(x, scale=2.0, mask=bias), x), grad(added, x))


def test_gradients_agree_with_differences():
    x, bias = normal(2, 3, 5).requires_grad_(), normal(3, 1, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: softmax(x, scale=0.5), (x,))
    assert torch.autograd.gradcheck(lambda x: softmax(x, causal="bottom-right"), (x,))
    keep = kept(3, 5) & (torch.arange(3, device=DEVICE) > 0)[:, None]
    assert torch.autograd.gradcheck(lambda x: softmax(x, mask=keep, masked_rows="zero"), (x,))
    assert torch.autograd.gradcheck(lambda x, b: softmax(x, mask=b, scale=0.5, causal=True), (x, bias))


@IMPLEMENTATIONS
@pytest.mark.parametrize("keys", [40, 41, 20000])
def test_rows_without_visible_keys(implementation, keys):
    x = normal(4, keys, dtype=torch.float16).requires_grad_()
    keep = torch.tensor([True, False, True, False], device=DEVICE)[:, None]
    with running(implementation, seed=1):
        as_nan, as_zero = softmax(x, mask=keep), softmax(x, mask=keep, masked_rows="zero")
        dx = grad(as_zero, x)
    assert as_nan[1::2].isnan().all()
    assert not as_zero[1::2].any()
    assert not dx[1::2].any()
    torch.testing.assert_close(as_nan[::2], as_zero[::2], rtol=0, atol=0)
    assert as_zero[::2].isfinite().all()


@IMPLEMENTATIONS
@pytest.mark.parametrize("keys", [24, 25, 17000])
def test_hidden_values_have_no_say(implementation, keys):
    """What lies behind the diagonal may be anything, in the scores and in the gradients."""
    queries = 3
    see = visible(queries, keys, 2)
    scores = normal(queries, keys, dtype=torch.float32)
    x = scores.masked_fill(~see, NAN).requires_grad_()
    dy = normal(queries, keys, dtype=torch.float32, seed=1)
    op = torch.ops.titan.softmax
    with running(implementation, seed=1):
        y = op(x, None, 1.0, 2, False, None)
        (dx,) = torch.autograd.grad(y, x, dy.masked_fill(~see, NAN))
    expected = torch.softmax(scores.double().masked_fill(~see, -INF), -1)
    torch.testing.assert_close(y.double(), expected, rtol=1e-6, atol=1e-7)
    wanted = expected * (dy - (dy * expected).sum(-1, keepdim=True))
    torch.testing.assert_close(dx.double(), wanted, rtol=1e-5, atol=1e-6)


@IMPLEMENTATIONS
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("columns", [136, 131, 16500])
def test_fp32_result_of_half_precision_scores(implementation, dtype, columns):
    x = normal(2, columns, dtype=dtype).requires_grad_()
    with running(implementation, seed=1):
        y = softmax(x, scale=0.5, dtype=torch.float32)
        dx = grad(y, x)
    wide = x.detach().double().requires_grad_()
    exact = torch.softmax(wide * 0.5, -1)
    assert (y.dtype, dx.dtype) == (torch.float32, dtype)
    torch.testing.assert_close(y.double(), exact, rtol=1e-6, atol=1e-9)
    wanted = grad(exact, wide)
    # One unit: Triton's interpreter cuts fp32 off where hardware rounds.
    torch.testing.assert_close(dx.double(), wanted, rtol=torch.finfo(dtype).eps, atol=1e-7)


def test_a_million_columns():
    x = normal(1, 1_000_003, dtype=torch.float16).requires_grad_()
    with running("cuda", seed=1):
        y = softmax(x, dtype=torch.float32)
        (dx,) = torch.autograd.grad(y, x, y.detach())
    exact = torch.softmax(x.detach().double(), -1)
    torch.testing.assert_close(y.double(), exact, rtol=1e-5, atol=0)
    assert dx.isfinite().all()


class TestGradientOfTheMask:
    @pytest.mark.parametrize("shape", [(3, 5, 6), (2, 1, 1, 6), (6,)])
    def test_is_summed_over_the_dimensions_it_lacks(self, shape):
        x, bias = normal(2, 3, 5, 6).requires_grad_(), normal(*shape, seed=1).requires_grad_()
        ours = softmax(x, scale=0.5, mask=bias, causal="bottom-right")
        theirs = torch.softmax((x * 0.5 + bias).masked_fill(~visible(5, 6, 1), -INF), -1)
        torch.testing.assert_close(grad(ours, bias), grad(theirs, bias))
        torch.testing.assert_close(
            grad(softmax(x, scale=0.5, mask=bias), x), grad(torch.softmax(x * 0.5 + bias, -1), x)
        )

    def test_keeps_the_dtype_of_x(self):
        x, bias = normal(3, 8, dtype=torch.float16), normal(8, dtype=torch.float32, seed=1).requires_grad_()
        y = softmax(x, mask=bias)
        assert y.dtype == torch.float16
        assert grad(y, bias).dtype == torch.float32

    def test_the_bare_operator_refuses(self):
        x, bias = normal(3, 8), normal(8, seed=1).requires_grad_()
        with pytest.raises(UnsupportedError, match="no gradient for the mask"):
            torch.ops.titan.softmax(x, bias, 1.0, None, False, None)


class TestMaskRows:
    def rows(self, mask, x):
        """The mask's row for every row of x, found as the kernels find it."""
        found = mask_rows(mask, x)
        (size1, size2), strides = found.sizes, found.strides
        flat = found.values.as_strided(
            (found.values.untyped_storage().nbytes() // found.values.element_size(),), (1,), 0
        )
        rows = torch.arange(x.shape[:-1].numel())
        place = (
            rows // size2 // size1 * strides[0]
            + rows // size2 % size1 * strides[1]
            + rows % size2 * strides[2]
        )
        at = found.values.storage_offset() + place[:, None] + torch.arange(x.shape[-1])
        return flat[at]

    @pytest.mark.parametrize(
        "shape", [(2, 1, 5, 6), (2, 3, 5, 6), (1, 3, 1, 6), (2, 1, 1, 6), (5, 6), (5, 1), (), (3, 1, 6)]
    )
    def test_every_row_finds_its_own(self, shape):
        x, mask = torch.empty(2, 3, 5, 6), torch.randn(shape)
        torch.testing.assert_close(self.rows(mask, x), mask.expand(x.shape).reshape(-1, 6), rtol=0, atol=0)

    def test_nothing_is_copied(self):
        x, mask = torch.empty(2, 3, 5, 6), torch.ones(2, 1, 5, 6, dtype=torch.bool)
        assert mask_rows(mask, x).values.data_ptr() == mask.data_ptr()
        expanded = torch.ones(1, 1, 5, 6).expand(2, 3, 5, 6)
        assert mask_rows(expanded, x).values.data_ptr() == expanded.data_ptr()

    def test_alternating_dimensions_go_to_the_reference(self):
        x = normal(2, 3, 2, 3, 4, dtype=torch.float32)
        mask = normal(2, 1, 2, 1, 1, dtype=torch.float32, seed=1).expand(2, 1, 2, 1, 4)
        assert mask_rows(mask, x) is None
        explanation = explain("softmax", x, mask, 1.0, None, False, None)
        assert explanation.chosen == "reference"
        torch.testing.assert_close(softmax(x, mask=mask), torch.softmax(x + mask, -1))


def test_compiles_whole_and_survives_checkpointing():
    x, bias = (
        normal(2, 3, 5, 6, dtype=torch.float32).requires_grad_(),
        normal(5, 6, dtype=torch.float32, seed=1),
    )
    keep = kept(2, 1, 1, 6)

    def block(x):
        y = softmax(x, scale=0.5, mask=bias, causal="bottom-right")
        return softmax(y, mask=keep, masked_rows="zero", dtype=torch.float32)

    expected = grad(block(x), x)
    for wrapped in (
        torch.compile(block, fullgraph=True, backend="aot_eager"),
        lambda x: checkpoint(block, x, use_reentrant=False),
    ):
        torch.testing.assert_close(grad(wrapped(x), x), expected, rtol=0, atol=0)


def test_cuda_leaves_float64_gradients():
    y = torch.ones(2, 4)
    with emulated():
        verdict = dict(explain("softmax_backward", y, y, 1.0, None, torch.float64).verdicts)["cuda"]
    assert not verdict.ok
    assert "float64" in verdict.reason


def test_autocast_leaves_the_dtype_alone():
    x = normal(4, 16, dtype=torch.float16)
    with torch.autocast(DEVICE.type, torch.bfloat16):
        assert softmax(x).dtype == torch.float16


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"x": torch.ones(())}, "floating-point rows"),
        ({"x": torch.ones(3, dtype=torch.int64)}, "floating-point rows"),
        ({"causal": "left"}, r"causal \('left'\): it must be False, True, 'top-left' or 'bottom-right'"),
        ({"x": torch.ones(3), "causal": True}, r"causal \(True\): x \(shape \(3,\)\) has no queries"),
        ({"masked_rows": "one"}, r"masked_rows \('one'\): it must be 'nan' or 'zero'"),
        ({"dtype": torch.float16}, r"dtype \(torch.float16\): it must be that of x"),
        ({"mask": torch.ones(4, dtype=torch.int64)}, r"mask \(torch.int64\): it must be torch.bool"),
        ({"mask": torch.ones(3)}, r"mask \(shape \(3,\)\): it must be broadcastable to x"),
        ({"mask": torch.ones(2, 3, 4)}, r"mask \(shape \(2, 3, 4\)\): it must be broadcastable"),
    ],
)
def test_arguments_that_do_not_fit(arguments, message):
    with pytest.raises(ValueError, match=message):
        softmax(**{"x": torch.ones(3, 4)} | arguments)
