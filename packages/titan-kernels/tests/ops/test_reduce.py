"""reduce and var_mean against PyTorch's own functions."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from titan_kernels import emulated, explain
from titan_kernels.ops import reduce, var_mean
from titan_kernels.testing import DEVICE, running

THEIRS = {
    "sum": torch.sum,
    "mean": torch.mean,
    "amax": torch.amax,
    "norm": lambda x, dims, keepdim: torch.linalg.vector_norm(x, 2, dims, keepdim),
    "inf_norm": lambda x, dims, keepdim: torch.linalg.vector_norm(x, torch.inf, dims, keepdim),
    "var": lambda x, dims, keepdim: torch.var(x, dims, correction=1, keepdim=keepdim),
}
kinds = pytest.mark.parametrize("kind", THEIRS)
IMPLEMENTATIONS = pytest.mark.parametrize("implementation", ["cuda", "triton", "reference"])


def normal(*shape, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(DEVICE, dtype)


def same(ours, theirs):
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12, equal_nan=True)


@kinds
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dims", [0, 1, -1, (0, 2), (1, 2), (-1, 0, 1), None])
def test_values_and_gradients_are_pytorchs(kind, dims, keepdim):
    x = normal(3, 4, 5).requires_grad_()
    every = tuple(range(3)) if dims is None else dims
    ours, theirs = reduce(x, kind, dims, keepdim=keepdim), THEIRS[kind](x, every, keepdim)
    same(ours, theirs)
    weights = torch.randn_like(theirs)
    same(*(torch.autograd.grad((y * weights).sum(), x)[0] for y in (ours, theirs)))


@kinds
def test_ties_and_zeros_have_pytorchs_gradients(kind):
    x = torch.tensor([[2.0, -2.0, 2.0, 1.0], [0.0, 0.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    same(*(torch.autograd.grad(y.sum(), x)[0] for y in (reduce(x, kind, 1), THEIRS[kind](x, 1, False))))


@IMPLEMENTATIONS
@pytest.mark.parametrize("dims", [0, 1])
def test_variance_of_elements_whose_square_overflows(implementation, dims):
    x = 1e20 * torch.ones(40, 70, device=DEVICE)
    x[1, 1] *= 1 + 1e-6
    with running(implementation, seed=1):
        ours = reduce(x, "var", dims)
        too_large = reduce(1e30 * normal(40, 70, dtype=torch.float32), "var", dims)
    torch.testing.assert_close(ours, x.double().var(dims).float(), rtol=1e-4, atol=0)
    assert torch.equal(too_large, torch.full_like(too_large, torch.inf))


@kinds
@IMPLEMENTATIONS
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dims", [0, 1])
def test_special_values_give_what_pytorch_gives(implementation, kind, value, dims):
    x = normal(40, 40, dtype=torch.float32)
    x[3, 5] = value
    with running(implementation, seed=1):
        ours = reduce(x, kind, dims)
    torch.testing.assert_close(ours, THEIRS[kind](x, dims, False), equal_nan=True)


@kinds
@pytest.mark.filterwarnings("ignore:var:UserWarning")
def test_special_values_have_pytorchs_gradients(kind):
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([[1.0, nan, 2.0, nan], [1.0, inf, 2.0, 1.0]], dtype=torch.float64, requires_grad=True)
    for view, dims in ((x, 1), (x[:1], 0)):
        ours, theirs = reduce(view, kind, dims), THEIRS[kind](view, dims, False)
        same(*(torch.autograd.grad(y.sum(), x, retain_graph=True)[0] for y in (ours, theirs)))


@kinds
@pytest.mark.filterwarnings("ignore:var:UserWarning")
def test_no_elements(kind):
    x = torch.ones(3, 0)
    if kind in ("amax", "inf_norm"):
        with pytest.raises(ValueError, match=r"x \(shape \(3, 0\)\): .* over no elements has no value"):
            reduce(x, kind, 1)
    else:
        same(reduce(x, kind, 1), THEIRS[kind](x, 1, False))
    assert reduce(x, kind, 0).shape == (0,)


@pytest.mark.filterwarnings("ignore:var:UserWarning")
@IMPLEMENTATIONS
@pytest.mark.parametrize("correction", [0, 1, 2, 3, 0.5])
def test_corrections_are_pytorchs(implementation, correction):
    x = normal(2, 6, dtype=torch.float32)
    with running(implementation, seed=1):
        ours = reduce(x, "var", 0, correction=correction)
    torch.testing.assert_close(ours, torch.var(x, 0, correction=correction))


@IMPLEMENTATIONS
def test_variance_and_mean_together(implementation):
    x = normal(70, 33, dtype=torch.float32).requires_grad_()
    with running(implementation, seed=1):
        for dims in (0, 1, (0, 1)):
            ours, theirs = var_mean(x, dims, keepdim=True), torch.var_mean(x, dims, keepdim=True)
            torch.testing.assert_close(ours, theirs)
            grads = [torch.autograd.grad((v * m.sin()).sum(), x)[0] for v, m in (ours, theirs)]
            torch.testing.assert_close(*grads)
        (grad,) = torch.autograd.grad(var_mean(x, 0)[1].sum(), x)
        torch.testing.assert_close(grad, torch.full_like(x, 1 / 70))


@IMPLEMENTATIONS
def test_variance_beside_a_large_mean_keeps_its_digits(implementation):
    x = normal(300, 40, dtype=torch.float32) + 3e4
    exact = x.double().var(0)
    with running(implementation, seed=1):
        torch.testing.assert_close(reduce(x, "var", 0).double(), exact, rtol=1e-6, atol=0)
        torch.testing.assert_close(reduce(x.t(), "var", 1).double(), exact, rtol=1e-6, atol=0)
        torch.testing.assert_close(reduce(x.t().contiguous(), "var", 1).double(), exact, rtol=1e-6, atol=0)


@kinds
def test_gradients_agree_with_differences(kind):
    x = normal(3, 4, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: reduce(x, kind, (0, 2)), x)
    assert torch.autograd.gradgradcheck(lambda x: reduce(x, kind, 1, keepdim=True), x)


def test_gradients_of_variance_and_mean_agree_with_differences():
    assert torch.autograd.gradcheck(lambda x: var_mean(x, 1), normal(3, 4).requires_grad_())


@kinds
@IMPLEMENTATIONS
def test_wider_and_narrower_results(implementation, kind):
    half = (normal(6, 50) + 1).to(torch.float16).requires_grad_()
    with running(implementation, seed=1):
        wide = reduce(half, kind, 1, dtype=torch.float32)
        narrow = reduce(half.float(), kind, 0, dtype=torch.bfloat16)
        (grad,) = torch.autograd.grad(wide.sum(), half)
    assert grad.dtype == torch.float16
    torch.testing.assert_close(wide, THEIRS[kind](half.float(), 1, False), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(narrow, THEIRS[kind](half.float(), 0, False).to(torch.bfloat16))


def test_sums_of_fp16_do_not_overflow_on_the_way():
    x = torch.tensor([[60000.0, 60000.0, -60000.0]], device=DEVICE, dtype=torch.float16)
    with running("cuda", seed=1):
        assert reduce(x, "sum", 1).item() == 60000.0
        assert reduce(x, "norm", 1, dtype=torch.float32).item() == pytest.approx(60000 * 3**0.5)


@IMPLEMENTATIONS
@pytest.mark.parametrize(
    ("shape", "order", "dims"),
    [
        ((6, 7, 9), (2, 0, 1), (0,)),
        ((6, 7, 9), (1, 0, 2), (0, 2)),
        ((2, 3, 4, 5), (3, 1, 0, 2), (1, 3)),
        ((2, 3, 4, 5), (0, 2, 3, 1), (0, 1, 2)),  # channels last
        ((1, 5, 1, 4), (0, 1, 2, 3), (0, 1)),
    ],
)
def test_any_order_of_dimensions_in_memory(implementation, shape, order, dims):
    x = normal(*shape, dtype=torch.float32).permute(order)
    for view in (x, x[..., ::2], x[1:] if x.shape[0] > 1 else x):
        with running(implementation, seed=1):
            ours = reduce(view, "sum", dims)
        assert ours.is_contiguous()
        torch.testing.assert_close(ours, view.sum(dims))


def test_dense_tensors_are_read_where_they_are():
    """Two launches at most, and no copy: the kernel's reads are those of the tensor."""
    if DEVICE.type != "cpu":
        pytest.skip("counts come from the emulator")
    x = normal(64, 32, 128, dtype=torch.float32)
    for view, dims in ((x, (1,)), (x.permute(2, 0, 1), (0,)), (x.permute(1, 2, 0), (0, 2)), (x, (0, 2))):
        with running("cuda", count=True) as session:
            reduce(view, "sum", dims)
        first = session.launches[0].counters
        assert first.global_load_sectors == x.numel() * 4 / 32
        assert len(session.launches) <= 2


@kinds
def test_results_do_not_depend_on_the_schedule(kind):
    x = normal(3, 50000, dtype=torch.float16)
    for view, dims in ((x, 1), (x.view(-1, 30), 0)):
        results = []
        for schedule in (1, 2):
            with running("cuda", seed=schedule):
                results.append(reduce(view, kind, dims))
        assert torch.equal(*results)


def test_compiles_whole_and_survives_checkpointing():
    def block(x):
        return reduce(x.sin(), "norm", 1) + reduce(x, "var", -1) + sum(var_mean(x, 1)) + reduce(x, "mean", 1)

    x = normal(4, 30, dtype=torch.float32).requires_grad_()
    expected = torch.autograd.grad(block(x).sum(), x)[0]
    for wrapped in (
        torch.compile(block, fullgraph=True, backend="aot_eager"),
        torch.compile(block, fullgraph=True, backend="aot_eager", dynamic=True),
        lambda x: checkpoint(block, x, use_reentrant=False),
    ):
        torch.testing.assert_close(torch.autograd.grad(wrapped(x).sum(), x)[0], expected)


def test_autocast_leaves_the_dtype_alone():
    with torch.autocast(DEVICE.type, torch.bfloat16):
        assert reduce(torch.ones(3, 4, device=DEVICE), "sum").dtype == torch.float32


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((torch.ones(3), "median"), {}, r"kind \('median'\): it must be one of sum, mean, amax"),
        ((torch.ones(3), "sum", 1), {}, r"dim \(1\): x has 1 dimensions, so they go from -1 to 0"),
        ((torch.ones(3, 4), "sum", (0, -2)), {}, r"dim \(\(0, -2\)\): a dimension can be reduced only once"),
        ((torch.ones(3).long(), "sum"), {}, r"x \(torch.int64, .*: it must be floating point"),
        ((torch.ones(3), "sum"), {"dtype": torch.int32}, r"dtype \(torch.int32\): the result must be"),
    ],
)
def test_arguments_that_do_not_fit(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        reduce(*arguments, **options)


def test_triton_grid_has_room_for_many_columns(monkeypatch):
    kernels, grids = pytest.importorskip("titan_kernels.ops.reduce.triton"), []

    class Kernel:
        def __getitem__(self, grid):
            grids.append(grid)
            return lambda *args: None

    monkeypatch.setattr(kernels, "_segment_kernel", Kernel())
    kernels.reduce(torch.zeros(2, 5_000_000, dtype=torch.float16), "sum", [0], False, 1.0, None)
    assert all(size <= 65535 for size in grids[0][1:])


def test_more_results_than_the_kernels_count():
    x = torch.zeros(1).expand(2, 2**28)
    with emulated():
        verdict = dict(explain("reduce", x, "sum", [0], False, 1.0, None).verdicts)["cuda"]
        assert not verdict.ok
        assert "results" in verdict.reason
        assert explain("reduce", x, "sum", [1], False, 1.0, None).chosen == "cuda"
