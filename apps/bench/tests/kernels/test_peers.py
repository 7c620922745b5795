import pytest
import torch

from titan_bench.errors import VerificationError
from titan_bench.kernels import dropout, eager
from titan_bench.kernels.candidates import Arguments, candidates
from titan_bench.kernels.measure import PEER_BOUNDS
from titan_bench.kernels.peers import PEERS, Peer
from titan_kernels.registry import ops
from titan_kernels.testing import Truth, arguments

OPS = [op for name, op in ops().items() if isinstance(PEERS.get(name), Peer)]
# Names of cases with an option that PyTorch serves in another way than the first case.
OTHERS = (
    "causal",
    "bool mask of a batch",
    "bias of heads",
    "label smoothing",
    "scale",
    "padding",
    "packed 5x61",
    "gelu 5x61",
    "gelu_tanh 5x61",
    "inverse",
    "partial, interleaved",
    "packed documents",
    "no bias",
    "to torch.float16, scaled",
)


def test_every_operator_has_a_counterpart_or_a_reason():
    missing, gone = sorted(ops().keys() - PEERS.keys()), sorted(PEERS.keys() - ops().keys())
    assert not missing, (
        f"titan_bench/kernels/peers.py: add a Peer, or a text that says why not, for {missing}"
    )
    assert not gone, f"titan_bench/kernels/peers.py: {gone} are no operators"


def some():
    return [
        pytest.param(op, case, id=f"{op.name}-{case.label}")
        for op in OPS
        for case in [each for i, each in enumerate(op.cases()) if i == 0 or each.label in OTHERS]
    ]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=["fp16", "fp32"])
@pytest.mark.parametrize(("op", "case"), some())
def test_pytorch_computes_the_same(op, case, dtype):
    args = Arguments(arguments(case, dtype, device=torch.device("cpu")))
    eager_candidate = dict(candidates(op, args, lambda function: function))["eager"]()
    assert eager_candidate.problems(Truth.of(op, args.values), *PEER_BOUNDS) == []


@pytest.mark.parametrize("op", OPS, ids=lambda op: op.name)
def test_pytorch_can_be_compiled_as_a_whole(op, bench):
    torch.compiler.reset()
    args = Arguments(arguments(op.cases()[0], torch.float32, device=torch.device("cpu")))
    compiled = dict(candidates(op, args, bench.compiler))["compile"]()
    assert compiled.problems(Truth.of(op, args.values), *PEER_BOUNDS) == []


def dropped(p):
    torch.manual_seed(1)
    x, bias, residual = torch.randn(500, 64), torch.randn(64), torch.randn(500, 64)
    args = x, bias, residual, None, 0, 0.25
    return args, eager.bias_dropout_residual(x, bias, residual, p)


def test_dropout_is_verified_without_its_mask():
    args, y = dropped(0.25)
    assert dropout.forward_truth(args, [y]).problems([y], *PEER_BOUNDS) == []
    y[3, 7] += 0.5
    assert dropout.forward_truth(args, [y]).problems([y], *PEER_BOUNDS)


def test_dropout_of_another_share_is_wrong():
    args, y = dropped(0.5)
    with pytest.raises(VerificationError, match=r"not 25\.0%"):
        dropout.forward_truth(args, [y])


def test_gradient_of_the_bias_is_that_of_the_mask():
    dy = torch.randn(400, 8)
    dx = torch.nn.functional.dropout(dy, 0.1)
    args = dy, torch.randn(8), None, 0, 0.1, None
    good, bad = [dx, dx.sum(0)], [dx, dy.sum(0)]
    assert dropout.backward_truth(args, good).problems(good, *PEER_BOUNDS) == []
    assert dropout.backward_truth(args, bad).problems(bad, *PEER_BOUNDS)
