"""Cross-entropy of a vocabulary in parts against one call."""

import itertools

import pytest
import torch
from torch.nn import functional as F

from titan_kernels.ops import (
    PartialCrossEntropy,
    cross_entropy,
    cross_entropy_from_partial,
    cross_entropy_partial,
    cross_entropy_shard_gradient,
    merge_partials,
)
from titan_kernels.testing import DEVICE, running

OPTIONS = {
    "plain": {},
    "label smoothing": {"label_smoothing": 0.1},
    "z-loss": {"z_loss": 1e-2},
    "soft-cap": {"softcap": 4.0},
    "all": {"label_smoothing": 0.3, "z_loss": 1e-2, "softcap": 4.0, "ignore_index": 7},
}


def inputs(classes=50, dtype=torch.float64, ignore_index=-100):
    """Logits and targets of six rows, two of them ignored."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(6, classes, generator=generator, dtype=torch.float64)
    target = torch.randint(8, classes, (6,), generator=generator)
    target[[1, 4]] = ignore_index
    return logits.to(DEVICE, dtype), target.to(DEVICE)


def shards(classes, parts):
    edges = [classes * i // parts for i in range(parts + 1)]
    return list(itertools.pairwise(edges))


@pytest.mark.parametrize("implementation", ["cuda", "reference"])
@pytest.mark.parametrize("parts", range(2, 9))
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_vocabulary_in_parts(options, parts, implementation):
    dtype = torch.float32 if implementation == "cuda" else torch.float64
    ignore = options.get("ignore_index", -100)
    logits, target = inputs(classes=53, dtype=dtype, ignore_index=ignore)
    forward = {"softcap": options.get("softcap"), "ignore_index": ignore}
    losses = {key: value for key, value in options.items() if key != "softcap"}
    grad = torch.linspace(-1, 2, 6, device=DEVICE, dtype=dtype)
    places = shards(53, parts)
    with running(implementation):
        partials = [cross_entropy_partial(logits[:, a:b], target, a, **forward) for a, b in places]
        loss, lse = cross_entropy_from_partial(merge_partials(partials), target, 53, **losses)
        pieces = [
            cross_entropy_shard_gradient(grad, logits[:, a:b], target, lse, a, 53, **options)
            for a, b in places
        ]
    whole = logits.double().requires_grad_()
    expected = cross_entropy(whole, target, reduction="none", **options)
    expected.backward(grad.double())
    torch.testing.assert_close(loss, expected.to(dtype))
    torch.testing.assert_close(torch.cat(pieces, -1), whole.grad.to(dtype))


def test_all_reduces_merge_as_documented():
    logits, target = inputs()
    partials = [cross_entropy_partial(logits[:, a:b], target, a) for a, b in shards(50, 4)]
    maximum = torch.stack([part.maximum for part in partials]).amax(0)
    sums = sum(part.rescaled(maximum).sums() for part in partials)
    torch.testing.assert_close(PartialCrossEntropy(maximum, *sums), merge_partials(partials))


def test_shard_without_finite_logits():
    logits, target = inputs(classes=40)
    logits[:, 20:] = -torch.inf
    target = target.where(target == -100, target % 20)
    partials = [cross_entropy_partial(logits[:, a:b], target, a) for a, b in shards(40, 2)]
    loss, _ = cross_entropy_from_partial(merge_partials(partials), target, 40)
    torch.testing.assert_close(loss, F.cross_entropy(logits, target, reduction="none"))


def test_target_in_no_shard_is_nan():
    logits, target = inputs()
    target[0] = 60
    partials = [cross_entropy_partial(logits[:, a:b], target, a) for a, b in shards(50, 2)]
    loss, _ = cross_entropy_from_partial(merge_partials(partials), target, 50)
    assert torch.equal(loss.isnan(), target == 60)


def test_partial_checks_its_arguments():
    logits, target = inputs()
    with pytest.raises(ValueError, match="target"):
        cross_entropy_partial(logits, target[1:], 0)
    with pytest.raises(ValueError, match="softcap"):
        cross_entropy_partial(logits, target, 0, softcap=-1.0)
    with pytest.raises(ValueError, match="label_smoothing"):
        cross_entropy_shard_gradient(
            target.double(), logits, target, target.double(), 0, 50, label_smoothing=2.0
        )


@pytest.mark.parametrize("strange", [torch.ones(()), torch.ones(1), torch.ones(7), torch.ones(6).half()])
def test_numbers_that_do_not_belong_to_the_rows(strange):
    logits, target = inputs(dtype=torch.float32)
    rows, strange = torch.ones(6, device=DEVICE), strange.to(DEVICE)
    for name, grad, lse in (("grad", strange, rows), ("lse", rows, strange)):
        with pytest.raises(ValueError, match=rf"{name} \(.*\): it must be torch.float32 and have .* \(6,\)"):
            cross_entropy_shard_gradient(grad, logits, target, lse, 0, 50)
    partial = cross_entropy_partial(logits, target, 0)._replace(total=strange)
    with pytest.raises(ValueError, match=r"total \(.*\): it must be torch.float32"):
        cross_entropy_from_partial(partial, target, 50)


def test_merging_nothing():
    with pytest.raises(ValueError, match=r"partials \(none\): a vocabulary has at least one shard"):
        merge_partials([])


def test_gradient_over_the_logits():
    logits, target = inputs(dtype=torch.float32)
    lse, grad = logits.logsumexp(-1), torch.ones(6, device=DEVICE)
    plain = cross_entropy_shard_gradient(grad, logits, target, lse, 0, 50)
    version = logits._version
    inplace = cross_entropy_shard_gradient(grad, logits, target, lse, 0, 50, inplace_gradient=True)
    assert inplace.data_ptr() == logits.data_ptr()
    assert torch.equal(inplace, plain)
    assert logits._version > version
    with pytest.raises(ValueError, match="inplace_gradient"):
        cross_entropy_shard_gradient(grad, logits[:, :7], target, lse, 0, 50, inplace_gradient=True)
