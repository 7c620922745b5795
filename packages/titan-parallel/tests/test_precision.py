import pytest
import torch

from titan_parallel.errors import PrecisionError
from titan_parallel.precision import for_card, resolve_precision


@pytest.mark.parametrize(
    ("card", "capability", "expected"),
    [
        ("NVIDIA TITAN V", (7, 0), "fp16"),
        ("Tesla V100-SXM2-32GB", (7, 0), "fp16"),
        ("NVIDIA TITAN RTX", (7, 5), "fp16"),
        ("Tesla T4", (7, 5), "fp16"),
        ("NVIDIA GeForce GTX 1660 Ti", (7, 5), "fp32"),
        ("Tesla P100-PCIE-16GB", (6, 0), "fp32"),
        ("NVIDIA A100-SXM4-80GB", (8, 0), "bf16"),
        ("NVIDIA H100 80GB HBM3", (9, 0), "bf16"),
        ("A card of the future", (12, 0), "bf16"),
    ],
)
def test_auto_goes_by_what_the_card_can_do(card, capability, expected):
    precision = for_card("auto", card, capability)
    assert precision.name == expected
    assert precision.loss_scaling == (expected == "fp16")
    assert card in precision.reason


def test_emulated_bf16_is_said():
    assert "emulates" in for_card("bf16", "Tesla T4", (7, 5)).reason
    assert "emulates" not in for_card("bf16", "NVIDIA A100-SXM4-80GB", (8, 0)).reason


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("auto", torch.float32), ("fp32", torch.float32), ("fp16", torch.float16), ("bf16", torch.bfloat16)],
)
def test_every_name_on_cpu(name, dtype):
    precision = resolve_precision(name, torch.device("cpu"))
    assert precision.compute_dtype == dtype
    assert precision.mixed == (dtype != torch.float32)


def test_unknown_name():
    with pytest.raises(PrecisionError, match=r"precision \(fp8\)"):
        resolve_precision("fp8", torch.device("cpu"))
