"""Cross-entropy: the options, and the in-place gradient."""

import contextlib
import subprocess
import sys

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from titan_kernels import emulated, explain
from titan_kernels.ops import cross_entropy
from titan_kernels.testing import DEVICE, running

OPTIONS = {
    "plain": {},
    "label smoothing": {"label_smoothing": 0.1},
    "z-loss": {"z_loss": 1e-2},
    "soft-cap": {"softcap": 4.0},
    "all": {"label_smoothing": 0.3, "z_loss": 1e-2, "softcap": 4.0, "ignore_index": 7},
}


def inputs(rows=6, classes=50, dtype=torch.float64, ignore_index=-100, seed=0):
    """Logits and targets, two of them ignored."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(rows, classes, generator=generator, dtype=torch.float64)
    target = torch.randint(8, classes, (rows,), generator=generator)
    target[[1, 4]] = ignore_index
    return logits.to(DEVICE, dtype), target.to(DEVICE)


def pytorch(logits, target, *, z_loss=0.0, softcap=None, ignore_index=-100, reduction="mean", **options):
    """The same loss out of PyTorch's own functions."""
    z = softcap * torch.tanh(logits / softcap) if softcap else logits
    plain = F.cross_entropy(z, target, reduction=reduction, ignore_index=ignore_index, **options)
    penalty = (z_loss * z.logsumexp(-1).square())[target != ignore_index]
    if reduction == "none":
        return plain.index_add(0, (target != ignore_index).nonzero()[:, 0], penalty)
    return plain + (penalty.mean() if reduction == "mean" else penalty.sum())


def gradient(loss, logits):
    return torch.autograd.grad(loss.sum(), logits)[0]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_is_pytorchs_loss(options, reduction):
    logits, target = inputs(ignore_index=options.get("ignore_index", -100))
    logits.requires_grad_()
    ours = cross_entropy(logits, target, reduction=reduction, **options)
    theirs = pytorch(logits, target, reduction=reduction, **options)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(gradient(ours, logits), gradient(theirs, logits))


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_gradcheck(options):
    logits, target = inputs(ignore_index=options.get("ignore_index", -100))
    assert torch.autograd.gradcheck(
        lambda x: cross_entropy(x, target, reduction="none", **options), logits.requires_grad_()
    )


@pytest.mark.parametrize("divisor", [24, 24.0, torch.tensor(24)])
def test_divisor_replaces_the_number_of_rows(divisor):
    logits, target = inputs()
    if isinstance(divisor, torch.Tensor):
        divisor = divisor.to(DEVICE)
    mean = cross_entropy(logits, target, divisor=divisor)
    torch.testing.assert_close(mean, F.cross_entropy(logits, target, reduction="sum") / 24)


def test_no_row_that_counts_is_nan_but_has_no_gradient():
    logits, target = inputs()
    loss = cross_entropy(logits.requires_grad_(), torch.full_like(target, -100))
    assert loss.isnan()
    assert not gradient(loss, logits).any()


@pytest.mark.parametrize("implementation", ["cuda", "triton", "reference"])
def test_logits_whose_square_overflows(implementation):
    logits = torch.tensor([[1e20, 2e20, 0.0]], device=DEVICE)
    target = torch.ones(1, dtype=torch.int64, device=DEVICE)
    with running(implementation, seed=1):
        result = cross_entropy(logits, target, metrics=True)
    assert result.loss.item() == result.z_loss.item() == 0.0


def test_metrics():
    logits, target = inputs()
    result = cross_entropy(logits.requires_grad_(), target, z_loss=0.1, metrics=True)
    counts = target != -100
    lse = logits.logsumexp(-1)
    torch.testing.assert_close(result.lse, lse * counts)
    torch.testing.assert_close(result.z_loss, 0.1 * lse[counts].square().mean())
    torch.testing.assert_close(result.loss, pytorch(logits, target, z_loss=0.1))
    assert not result.z_loss.requires_grad
    assert not result.lse.requires_grad


@pytest.mark.parametrize("implementation", ["cuda", "triton", "reference"])
def test_options_in_every_implementation(implementation):
    logits, target = inputs(dtype=torch.float32)
    logits.requires_grad_()
    options = {"label_smoothing": 0.1, "z_loss": 1e-2}
    with running(implementation, seed=3):
        loss = cross_entropy(logits, target, **options)
        grad = gradient(loss, logits)
    exact = logits.detach().double().requires_grad_()
    expected = pytorch(exact, target, **options)
    torch.testing.assert_close(loss, expected.float())
    torch.testing.assert_close(grad, gradient(expected, exact).float())


@pytest.mark.parametrize("implementation", ["cuda", "triton"])
@pytest.mark.parametrize("wrong", [50, -1, 2**40])
def test_target_out_of_range_is_nan_where_a_check_would_wait(implementation, wrong):
    logits, target = inputs(dtype=torch.float32)
    target[2] = wrong
    logits.requires_grad_()
    with running(implementation):
        loss = cross_entropy(logits, target, reduction="none")
        grad = gradient(loss, logits)
    bad = torch.arange(6, device=DEVICE) == 2
    assert torch.equal(loss.isnan(), bad)
    assert torch.equal(grad.isnan().all(-1), bad)
    assert torch.equal(grad.isnan().any(-1), bad)


@pytest.mark.skipif(DEVICE.type != "cpu", reason="GPUs don't check")
@pytest.mark.parametrize("wrong", [50, -1])
def test_target_out_of_range_is_an_error_on_a_cpu(wrong):
    logits, target = inputs()
    target[2] = wrong
    with pytest.raises(IndexError, match=rf"target \({wrong}\): it must be a class from 0 to 49"):
        cross_entropy(logits, target)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"target": torch.zeros(5, dtype=torch.int64)},
            r"target \(shape \(5,\)\): it must have the shape \(6,\)",
        ),
        ({"target": torch.zeros(6)}, r"target \(torch.float32\): it must hold class indices"),
        ({"logits": torch.zeros(6, 0)}, r"logits \(torch.float32, shape \(6, 0\)\)"),
        ({"logits": torch.zeros(6, 4, dtype=torch.int64)}, r"logits \(torch.int64"),
        ({"label_smoothing": 1.5}, r"label_smoothing \(1.5\): it must be from 0 to 1"),
        ({"z_loss": -1.0}, r"z_loss \(-1.0\)"),
        ({"softcap": 0.0}, r"softcap \(0.0\): it must be positive"),
        ({"softcap": float("inf")}, r"softcap \(inf\): it must be positive and finite"),
        ({"reduction": "avg"}, r"reduction \('avg'\): it must be 'mean', 'sum' or 'none'"),
        ({"reduction": "sum", "divisor": 3}, r"divisor: reduction \('sum'\) divides by nothing"),
        ({"divisor": 0}, r"divisor \(0\): it must be positive"),
        ({"divisor": torch.ones(2)}, r"divisor \(shape \(2,\)\)"),
    ],
)
def test_argument_errors(change, message):
    logits, target = inputs()
    with pytest.raises(ValueError, match=message):
        cross_entropy(**{"logits": logits, "target": target, **change})


def test_all_problems_at_once():
    logits, target = inputs()
    with pytest.raises(ValueError, match=r"(?s)label_smoothing.*softcap.*reduction"):
        cross_entropy(logits, target, label_smoothing=-1.0, softcap=-1.0, reduction="")


class TestInplaceGradient:
    """The gradient in the logits' memory."""

    @staticmethod
    def head(dtype=torch.float32):
        x, target = inputs(classes=40, dtype=dtype)
        weight = torch.linspace(-1, 1, 40 * 51, device=DEVICE, dtype=dtype).view(51, 40)
        return x.requires_grad_(), weight.requires_grad_(), target

    @pytest.mark.parametrize("implementation", ["cuda", "triton", "reference"])
    @pytest.mark.parametrize("scale", [1.0, 65536.0])
    def test_gradients_are_the_same(self, implementation, scale):
        x, weight, target = self.head()
        results = []
        for inplace in (False, True):
            with running(implementation):
                logits = x @ weight.t()
                loss = scale * cross_entropy(logits, target, inplace_gradient=inplace)
                results.append((loss, *torch.autograd.grad(loss, (x, weight))))
        for plain, inplace in zip(*results, strict=True):
            assert torch.equal(plain, inplace)

    def test_gradient_has_the_logits_memory(self):
        x, weight, target = self.head()
        logits = x @ weight.t()
        addresses = []
        logits.register_hook(lambda gradient: addresses.append(gradient.data_ptr()))
        before = logits.detach().clone()
        loss = cross_entropy(logits, target, inplace_gradient=True)
        assert torch.equal(logits, before), "the logits keep their values until the backward"
        loss.backward()
        assert addresses == [logits.data_ptr()]

    def test_leaf_is_refused(self):
        logits, target = inputs()
        logits.requires_grad_()
        for each in (logits, logits.view(2, 3, 50).view(6, 50)):
            with pytest.raises(ValueError, match="the logits are a leaf that requires a gradient"):
                cross_entropy(each, target, inplace_gradient=True)

    def test_shared_memory_is_refused(self):
        x, weight, target = self.head()
        logits = (x @ weight.t()).view(2, 3, 51)[:, :-1]
        with pytest.raises(ValueError, match="don't have memory of their own"):
            cross_entropy(logits, target.view(2, 3)[:, 1:], inplace_gradient=True)

    def test_operator_that_kept_the_logits_raises(self):
        x, weight, target = self.head()
        logits = torch.tanh(x @ weight.t())
        loss = cross_entropy(logits, target, inplace_gradient=True)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()

    def test_view_that_somebody_kept_raises(self):
        x, weight, target = self.head()
        logits = x @ weight.t()
        entropy = logits.view(-1).square().sum()
        loss = cross_entropy(logits, target, inplace_gradient=True)
        loss.backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            entropy.backward()

    def test_second_backward_raises(self):
        x, weight, target = self.head()
        loss = cross_entropy(x @ weight.t(), target, inplace_gradient=True)
        loss.backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()

    def test_without_gradient_nothing_is_written(self):
        logits, target = inputs()
        before = logits.clone()
        loss = cross_entropy(logits, target, inplace_gradient=True)
        assert torch.equal(logits, before)
        torch.testing.assert_close(loss, F.cross_entropy(logits, target))

    def test_activation_checkpointing(self):
        x, weight, target = self.head()

        def head(x):
            return cross_entropy(x @ weight.t(), target, inplace_gradient=True)

        expected = torch.autograd.grad(head(x), (x, weight))
        got = torch.autograd.grad(checkpoint(head, x, use_reentrant=False), (x, weight))
        for a, b in zip(got, expected, strict=True):
            assert torch.equal(a, b)


def test_gradient_over_logits_that_are_no_rows_is_written_by_the_reference():
    logits, target = inputs(dtype=torch.float32)
    transposed, lse = logits.t().contiguous().t(), logits.logsumexp(-1)
    args = (target, lse, 0, logits.shape[-1], -100, 0.0, 0.0, 0.0)
    grad = torch.ones_like(lse)
    with contextlib.nullcontext() if DEVICE.type == "cuda" else emulated():
        assert explain("cross_entropy_backward_inplace", grad, transposed, *args).chosen == "reference"
        torch.ops.titan.cross_entropy_backward_inplace(grad, transposed, *args)
        torch.ops.titan.cross_entropy_backward_inplace(grad, logits, *args)
    torch.testing.assert_close(transposed, logits)


@pytest.mark.parametrize("inplace", [False, True])
def test_compiles_without_graph_breaks(inplace):
    x, weight, target = TestInplaceGradient.head()

    def head(x, weight):
        return cross_entropy(x @ weight.t(), target, z_loss=1e-3, softcap=9.0, inplace_gradient=inplace)

    compiled = torch.compile(head, backend="aot_eager", fullgraph=True)
    for f in (head, compiled):
        loss = f(x, weight)
        torch.testing.assert_close(loss, head(x, weight))
        grads = torch.autograd.grad(loss, (x, weight))
        torch.testing.assert_close(grads, torch.autograd.grad(head(x, weight), (x, weight)))


def test_first_call_may_be_compiled():
    """In a process of its own: whatever is set up at the first call is not there yet."""
    script = (
        "import torch; from titan_kernels.ops import cross_entropy;"
        "f = torch.compile(cross_entropy, backend='aot_eager', fullgraph=True);"
        "print(f(torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64)).exp().item())"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert abs(float(result.stdout) - 4) < 1e-5


def test_autocast_leaves_half_precision_logits_alone():
    logits, target = inputs(dtype=torch.bfloat16)
    with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
        loss = cross_entropy(logits.requires_grad_(), target)
    assert loss.dtype == torch.float32
    assert gradient(loss, logits).dtype == torch.bfloat16
