"""bias_dropout_residual: its random numbers, its mask, and the function around it."""

import os
import subprocess
import sys

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from titan_kernels.ops import bias_dropout_residual
from titan_kernels.ops.bias_dropout_residual.reference import philox
from titan_kernels.testing import DEVICE, running

IMPLEMENTATIONS = pytest.mark.parametrize("implementation", ["cuda", "triton", "reference"])


def normal(*shape, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(DEVICE, dtype).requires_grad_()


def mask(shape, p=0.25, dtype=torch.float32, **options):
    """Which elements stay."""
    return bias_dropout_residual(torch.ones(shape, device=DEVICE, dtype=dtype), p=p, **options) != 0


# Random123's known answers for philox4x32-10; the counter's high half is zero there as here.
def test_generator_gives_the_published_words():
    words = philox(torch.tensor(0), torch.tensor([0]))[0].tolist()
    assert words == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]


def test_generator_is_philox_as_written_down_in_integers():
    for seed, block in ((-1, 2**62 + 12345), (0x0123456789ABCDEF, 0xFFFFFFFF), (2**63 - 1, 2**32)):
        counter, key = [block % 2**32, block >> 32, 0, 0], [seed % 2**32, seed % 2**64 >> 32]
        for _ in range(10):
            a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
            counter = [(b >> 32) ^ counter[1] ^ key[0], b % 2**32, (a >> 32) ^ counter[3] ^ key[1], a % 2**32]
            key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
        assert philox(torch.tensor(seed), torch.tensor([block]))[0].tolist() == counter


@pytest.mark.parametrize("offset", [0, 3, 2**34 + 1])
@pytest.mark.parametrize("shape", [(9, 64), (5, 61), (1, 4099), (33, 1)], ids=str)
def test_mask_is_the_same_bits_everywhere(shape, offset):
    with running("reference"):
        expected = mask(shape, seed=-7, offset=offset)
    for implementation in ("cuda", "triton"):
        for dtype in (torch.float32, torch.float16, torch.bfloat16):
            with running(implementation, seed=1):
                assert torch.equal(mask(shape, dtype=dtype, seed=-7, offset=offset), expected), implementation
                bias = torch.zeros(shape[1], device=DEVICE, dtype=dtype)
                assert torch.equal(mask(shape, dtype=dtype, bias=bias, seed=-7, offset=offset), expected)


@IMPLEMENTATIONS
def test_shards_and_layouts_share_the_mask(implementation):
    with running(implementation, seed=1):
        whole = mask((8, 50), seed=5)
        parts = [mask((4, 50), seed=5, offset=200 * i) for i in range(2)]
        transposed = bias_dropout_residual(torch.ones(50, 8, device=DEVICE).t(), p=0.25, seed=5) != 0
    assert torch.equal(torch.cat(parts), whole)
    assert torch.equal(transposed, whole)


@IMPLEMENTATIONS
def test_backward_draws_the_same_mask(implementation):
    for offset in (0, 5):
        x, bias = normal(70, 33, dtype=torch.float32), normal(33, dtype=torch.float32)
        with running(implementation, seed=1):
            y = bias_dropout_residual(x, bias, p=0.5, seed=11, offset=offset)
            dx, dbias = torch.autograd.grad(y.sum(), (x, bias))
        assert torch.equal(dx, 2.0 * (y != 0))
        torch.testing.assert_close(dbias, dx.sum(0))


def test_keeps_with_the_right_probability():
    """Every bit of the count has a binomial distribution, of which 5 standard deviations are checked."""
    count, seeds = 4096, 200
    for p in (0.1, 0.5, 0.9):
        with running("reference"):  # the same bits as the others, and the fastest on a CPU
            kept = torch.stack([mask((count,), p=p, seed=seed) for seed in range(seeds)]).double()
        spread = (p * (1 - p)) ** 0.5
        assert abs(kept.mean() - (1 - p)) < 5 * spread / (count * seeds) ** 0.5
        assert (kept.mean(1) - (1 - p)).abs().max() < 5 * spread / count**0.5
        # Neither neighbours nor neighbouring seeds know of each other.
        centred = kept - (1 - p)
        for a, b in ((centred[:, 1:], centred[:, :-1]), (centred[1:], centred[:-1])):
            assert abs((a * b).mean()) < 5 * spread**2 / a.numel() ** 0.5


@IMPLEMENTATIONS
def test_extreme_probabilities(implementation):
    x, residual = normal(3, 40, dtype=torch.float32), normal(3, 40, dtype=torch.float32, seed=1)
    strange = x.detach().index_fill(0, torch.tensor([1], device=DEVICE), float("nan"))
    with running(implementation, seed=1):
        assert torch.equal(bias_dropout_residual(x, residual=residual, p=0.0), x + residual)
        assert torch.equal(bias_dropout_residual(x, residual=residual, p=0.9, training=False), x + residual)
        assert torch.equal(bias_dropout_residual(strange, residual=residual, p=1.0), residual)
        (grad,) = torch.autograd.grad(bias_dropout_residual(x, p=1.0).sum(), x)
    assert not grad.any()


def test_reference_is_the_formula_of_the_mask():
    x, bias, residual = normal(4, 30), normal(30), normal(4, 30, seed=2)
    kept = mask((4, 30), p=0.4, seed=3, dtype=torch.float64)
    ours = bias_dropout_residual(x, bias, residual, p=0.4, seed=3)
    torch.testing.assert_close(ours, kept * (x + bias) / 0.6 + residual)


def test_gradients_agree_with_differences():
    arguments = normal(3, 7), normal(7), normal(3, 7, seed=2)
    assert torch.autograd.gradcheck(lambda *a: bias_dropout_residual(*a, p=0.3, seed=1), arguments)
    assert torch.autograd.gradcheck(lambda x: bias_dropout_residual(x, p=0.3, seed=1), arguments[:1])


@IMPLEMENTATIONS
def test_an_fp32_residual_keeps_its_precision(implementation):
    x, bias = normal(5, 36, dtype=torch.float16), normal(36, dtype=torch.float32)
    residual = normal(5, 36, dtype=torch.float32, seed=2)
    with running(implementation, seed=1):
        y = bias_dropout_residual(x, bias, residual, p=0.5, seed=1)
        grads = torch.autograd.grad((y * y).sum(), (x, bias, residual))
    kept = mask((5, 36), p=0.5, seed=1)
    torch.testing.assert_close(y, kept * 2 * (x + bias) + residual)
    assert [g.dtype for g in grads] == [torch.float16, torch.float32, torch.float32]
    torch.testing.assert_close(grads[0], (kept * 4 * y).half())
    torch.testing.assert_close(grads[1], (kept * 4 * y).sum(0))


def test_generator_decides_where_no_seed_is_given():
    def draw():
        return mask((64,), p=0.5)

    torch.manual_seed(1)
    first, second = draw(), draw()
    torch.manual_seed(1)
    assert torch.equal(draw(), first)
    assert torch.equal(draw(), second)
    assert not torch.equal(first, second)


@pytest.mark.parametrize(
    "options", [{"p": 0.0}, {"p": 1.0}, {"p": 0.5, "training": False}, {"p": 0.5, "seed": 1}]
)
def test_generator_stays_where_nothing_is_drawn(options):
    before = torch.get_rng_state()
    mask((4,), **options)
    assert torch.equal(torch.get_rng_state(), before)


def test_seed_tensors_are_seeds():
    assert torch.equal(mask((99,), seed=torch.tensor([-3], device=DEVICE)), mask((99,), seed=-3))


def test_checkpointing_recomputes_the_same_mask():
    x = normal(6, 50, dtype=torch.float32)

    def block(x):
        return bias_dropout_residual(x.sin(), p=0.5).square()

    grads = []
    for run in (block, lambda x: checkpoint(block, x, use_reentrant=False)):
        torch.manual_seed(4)
        grads.append(torch.autograd.grad(run(x).sum(), x)[0])
    assert torch.equal(*grads)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_compiled_functions_draw_anew_and_agree_with_themselves(backend, checkpointed):
    """The gradient of y^2 / 2 is y / (1 - p) on the kept elements: the mask of both passes is one."""

    def block(x):
        return bias_dropout_residual(x, x[0], x, p=0.5)

    def run(x):
        return checkpoint(block, x, use_reentrant=False) if checkpointed else block(x)

    torch.compiler.reset()
    compiled = torch.compile(run, fullgraph=True, backend=backend)
    x = torch.full((40, 50), 2.0, device=DEVICE, requires_grad=True)
    masks = []
    for _ in range(2):
        y = compiled(x)
        (grad,) = torch.autograd.grad(y, x, torch.ones_like(y))
        masks.append(y != 2.0)
        expected = 1.0 + 2.0 * masks[-1]
        expected[0] += 2.0 * masks[-1].sum(0)
        assert torch.equal(grad, expected)
    assert 0.4 < masks[0].double().mean() < 0.6
    assert not torch.equal(*masks)


def test_int_seeds_compile_without_constants_in_the_graph():
    compiled = torch.compile(
        lambda x, seed: bias_dropout_residual(x, p=0.5, seed=seed),
        fullgraph=True,
        backend="aot_eager",
        dynamic=True,
    )
    x = torch.ones(100, device=DEVICE)
    for seed in (5, 6, 2**62):
        assert torch.equal(compiled(x, seed) != 0, mask((100,), p=0.5, seed=seed))


@pytest.mark.skipif(DEVICE.type != "cuda", reason="CUDA graphs need a GPU")
def test_replays_of_a_cuda_graph_draw_anew():
    x = torch.ones(1000, device=DEVICE)
    bias_dropout_residual(x, p=0.5)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = bias_dropout_residual(x, p=0.5)
    graph.replay()
    first = y.clone()
    graph.replay()
    assert not torch.equal(first, y)


def test_another_process_draws_the_same():
    code = (
        "import torch; from titan_kernels.ops import bias_dropout_residual as f; torch.manual_seed(9);"
        "print(f(torch.ones(64), p=0.5).tolist())"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ, capture_output=True, text=True, check=True
        ).stdout
        for _ in range(2)
    }
    assert len(seen) == 1


@IMPLEMENTATIONS
def test_bias_gradient_is_deterministic(implementation):
    x, bias = normal(300, 65, dtype=torch.float16), normal(65, dtype=torch.float16)
    grads = []
    for schedule in (1, 2):
        with running(implementation, seed=schedule):
            y = bias_dropout_residual(x, bias, p=0.1, seed=3)
            grads.append(torch.autograd.grad(y.sum(), bias)[0])
    assert torch.equal(*grads)


@IMPLEMENTATIONS
def test_a_single_row(implementation):
    x, bias = normal(40, dtype=torch.float32), normal(40, dtype=torch.float32, seed=1)
    with running(implementation, seed=1):
        y = bias_dropout_residual(x, bias, p=0.5, seed=3)
        dx, dbias = torch.autograd.grad(y.sum(), [x, bias])
    assert torch.equal(dx, dbias)
    assert torch.equal(dx, 2.0 * (y != 0))


@IMPLEMENTATIONS
def test_every_implementation_has_the_gradient_of_a_narrow_bias_beside_an_fp32_residual(implementation):
    x, bias = normal(30, 40, dtype=torch.float16), normal(40, dtype=torch.float16, seed=1)
    residual = normal(30, 40, dtype=torch.float32, seed=2)
    with running(implementation, seed=1):
        y = bias_dropout_residual(x, bias, residual, p=0.5, seed=3)
        dx, dbias = torch.autograd.grad(y.sum(), [x, bias])
    assert dbias.dtype == torch.float16
    assert torch.equal(dbias, dx.sum(0))


def test_autocast_leaves_the_dtype_alone():
    with torch.autocast(DEVICE.type, torch.bfloat16):
        assert bias_dropout_residual(torch.ones(3, 4, device=DEVICE), p=0.5).dtype == torch.float32


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((torch.ones(()),), {}, r"x \(torch.float32, shape \(\)\): it needs floating-point rows"),
        ((torch.ones(3, 4), torch.ones(3)), {}, r"bias \(.*\(3,\)\): it must have the shape \(4,\)"),
        ((torch.ones(4), torch.ones(4).half()), {}, r"bias \(torch.float16.*dtype of x"),
        ((torch.ones(4), None, torch.ones(5)), {}, r"residual \(.* \(5,\)\): it must be like x .*\(4,\)"),
        ((torch.ones(4), None, torch.ones(4).half()), {}, r"residual .*may also be torch.float32"),
        ((torch.ones(4),), {"p": 1.5}, r"p \(1.5\): it must be a probability"),
        ((torch.ones(4),), {"p": float("nan")}, r"p \(nan\)"),
        ((torch.ones(4),), {"offset": -1}, r"offset \(-1\): it must not be negative"),
        ((torch.ones(4),), {"seed": 2**63}, r"seed \(9223372036854775808\): it must fit in 64 bits"),
        ((torch.ones(4),), {"seed": torch.ones(2).long()}, r"seed \(torch.int64, shape \(2,\).*one int64"),
        ((torch.ones(4),), {"seed": torch.ones(1)}, r"seed \(torch.float32"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        bias_dropout_residual(*arguments, **{"p": 0.5, **options})


def test_the_operator_itself_wants_a_seed():
    with pytest.raises(ValueError, match=r"seed \(None\): p \(0.5\) needs one"):
        torch.ops.titan.bias_dropout_residual(torch.ones(4), None, None, None, 0, 0.5)
