"""Arguments that no operator can serve are refused in words, by every public function alike."""

import pytest
import torch

from titan_kernels import ops

ROWS, COLUMNS = torch.ones(2, 4), torch.ones(4)
TARGET = torch.zeros(2, dtype=torch.int64)
HEADS, TABLE = torch.ones(1, 2, 1, 4), torch.ones(2, 2)

# By function: its tensors by name, and its other arguments.
CALLS = {
    "rms_norm": ({"x": ROWS, "weight": COLUMNS, "residual": ROWS}, {}),
    "layer_norm": ({"x": ROWS, "weight": COLUMNS, "bias": COLUMNS, "residual": ROWS}, {}),
    "bias_dropout_residual": ({"x": ROWS, "bias": COLUMNS, "residual": ROWS}, {"p": 0.5}),
    "swiglu": ({"gate": ROWS, "up": ROWS}, {}),
    "geglu": ({"gate": ROWS, "up": ROWS}, {}),
    "relu2": ({"x": ROWS}, {}),
    "softmax": ({"x": ROWS, "mask": ROWS}, {}),
    "cross_entropy": ({"logits": ROWS, "target": TARGET}, {}),
    "cross_entropy_partial": ({"logits_shard": ROWS, "target": TARGET}, {"vocab_start": 0}),
    "cross_entropy_shard_gradient": (
        {"grad": torch.ones(2), "logits_shard": ROWS, "target": TARGET, "lse": torch.ones(2)},
        {"vocab_start": 0, "vocab_size": 4},
    ),
    "embedding": ({"weight": ROWS, "indices": TARGET}, {}),
    "embedding_gradient": ({"grad": ROWS, "indices": TARGET}, {"rows": 2}),
    "rope": ({"x": HEADS, "cos": TABLE, "sin": TABLE, "positions": torch.arange(2)}, {}),
    "rope_qk": ({"q": HEADS, "k": HEADS, "cos": TABLE, "sin": TABLE}, {}),
    "reduce": ({"x": ROWS}, {"kind": "sum"}),
    "var_mean": ({"x": ROWS}, {}),
}
# Of lists, or of results that the package has made itself.
OTHERS = {"multi_tensor_norm", "multi_tensor_cast", "cross_entropy_from_partial", "merge_partials"}
EACH = pytest.mark.parametrize("name", CALLS)


def call(name, **changed):
    tensors, options = CALLS[name]
    return getattr(ops, name)(**{**tensors, **options, **changed})


def test_every_function_is_here():
    functions = {each for each in ops.__all__ if not isinstance(getattr(ops, each), type)}
    assert functions == CALLS.keys() | OTHERS
    for name in CALLS:
        call(name)


@EACH
def test_another_device(name):
    for argument, x in list(CALLS[name][0].items())[1:]:
        with pytest.raises(ValueError, match=r"\(on .*\): it must be on the device of \w+ \(.*\)"):
            call(name, **{argument: x.to("meta")})


@EACH
def test_fp8(name):
    tensors = CALLS[name][0]
    narrow = {each: x.to(torch.float8_e4m3fn) for each, x in tensors.items() if x.is_floating_point()}
    with pytest.raises(ValueError, match=r"\(torch.float8_e4m3fn, .*fp16, bf16, fp32 or float64"):
        call(name, **narrow)


@pytest.mark.parametrize("name", ["multi_tensor_norm", "multi_tensor_cast"])
def test_lists_of_fp8(name):
    lists = [[ROWS.to(torch.float8_e4m3fn)]] * (1 if name.endswith("norm") else 2)
    with pytest.raises(ValueError, match=r"\(number 0: torch.float8_e4m3fn\): .*fp16, bf16, fp32 or float64"):
        getattr(ops, name)(*lists)


@pytest.mark.parametrize("name", ["rms_norm", "layer_norm"])
@pytest.mark.parametrize("eps", [-1e-6, float("nan")])
def test_negative_eps(name, eps):
    with pytest.raises(ValueError, match=rf"eps \({eps}\): it must not be negative"):
        call(name, eps=eps)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.bfloat16])
@pytest.mark.parametrize("name", ["rms_norm", "layer_norm"])
def test_weight_of_another_dtype(name, dtype):
    with pytest.raises(
        ValueError, match=rf"weight \({dtype}\): it must have the dtype of x \(torch.float16\)"
    ):
        call(name, x=ROWS.half(), residual=None, weight=COLUMNS.to(dtype))


def test_all_problems_at_once():
    with pytest.raises(ValueError, match=r"weight .*; residual .*; eps "):
        ops.rms_norm(ROWS, COLUMNS.half(), residual=ROWS.double(), eps=-1.0)
