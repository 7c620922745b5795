"""Model FLOPs against PyTorch's own counter, and MFU against a known card."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from titan_kernels import device as device_facts
from titan_pretrain.config.sections import ModelConfig
from titan_pretrain.metrics import flops
from titan_pretrain.models.llama3 import Llama3

SHAPES = {
    "grouped": ModelConfig(dim=32, n_layers=2, n_heads=4, n_kv_heads=2, ffn_dim=48, vocab_size=64),
    "full": ModelConfig(dim=32, n_layers=3, n_heads=4, n_kv_heads=4, ffn_dim=80, vocab_size=128),
    "tied": ModelConfig(
        dim=48, n_layers=1, n_heads=3, n_kv_heads=1, ffn_dim=64, vocab_size=96, tied_embeddings=True
    ),
}


@pytest.mark.parametrize("config", SHAPES.values(), ids=SHAPES.keys())
def test_three_forward_passes_are_what_pytorch_counts(config):
    seq_len = 16
    with torch.device("meta"):
        model, tokens = Llama3(config), torch.zeros(2, seq_len, dtype=torch.int64)
    counter = FlopCounterMode(display=False)
    with counter:
        model(tokens)
    assert 3 * counter.get_total_flops() == 2 * seq_len * flops.flops_per_token(config, seq_len)


@pytest.mark.parametrize("config", SHAPES.values(), ids=SHAPES.keys())
def test_parameters_are_those_of_the_model(config):
    with torch.device("meta"):
        model = Llama3(config)
    assert flops.num_parameters(config) == sum(parameter.numel() for parameter in model.parameters())


def test_attention_grows_with_the_sequence_and_not_with_the_key_heads():
    grouped, full = (ModelConfig(dim=64, n_heads=8, n_kv_heads=heads, ffn_dim=128) for heads in (2, 8))
    growth = [flops.flops_per_token(c, 2048) - flops.flops_per_token(c, 1024) for c in (grouped, full)]
    assert growth[0] == growth[1] == 12 * grouped.n_layers * 64 * 1024
    assert flops.flops_per_token(grouped, 1024) < flops.flops_per_token(full, 1024)


def test_mfu_is_measured_against_the_card_s_peak_for_the_dtype(monkeypatch):
    card = device_facts.lookup("NVIDIA TITAN RTX", (7, 5))
    monkeypatch.setattr(device_facts, "current", lambda _: card)
    config, cuda = ModelConfig(), torch.device("cuda")
    speed = 0.5 * 130.5e12 / flops.flops_per_token(config, 256)
    mfu = flops.model_flops_utilization(config, 256, speed, device=cuda, dtype=torch.float16)
    assert mfu == pytest.approx(0.5)
    assert flops.model_flops_utilization(config, 256, speed, device=cuda, dtype=torch.bfloat16) is None


def test_a_cpu_has_no_mfu():
    cpu = torch.device("cpu")
    assert flops.model_flops_utilization(ModelConfig(), 256, 1e4, device=cpu, dtype=torch.float32) is None
