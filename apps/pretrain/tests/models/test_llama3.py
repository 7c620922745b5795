"""Llama 3 against transformers, and its own promises."""

import pytest
import torch

from titan_pretrain.config.sections import ModelConfig, RopeScalingConfig
from titan_pretrain.models.llama3 import Llama3
from titan_pretrain.models.llama3.hf import hf_config, hf_names

SCALING = RopeScalingConfig(factor=8.0, original_max_seq_len=32)


def build(**changes):
    shape = {
        "dim": 48,
        "n_layers": 3,
        "n_heads": 6,
        "n_kv_heads": 2,
        "ffn_dim": 80,
        "vocab_size": 97,
        "init_std": 0.06,
    }
    config = ModelConfig(**(shape | changes))
    model = Llama3(config)
    model.init_weights(5)
    return config, model


def hf_twin(config, model):
    transformers = pytest.importorskip("transformers", reason="transformers is the referee of this test")
    described = hf_config(config, max_seq_len=64, bos_id=0, eos_id=1)
    twin = transformers.LlamaForCausalLM(transformers.LlamaConfig(**described, attn_implementation="sdpa"))
    names, state = hf_names(config), twin.state_dict()
    assert set(names.values()) | ({"lm_head.weight"} if config.tied_embeddings else set()) == set(state)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            state[names[name]].copy_(parameter)
    return twin.float()


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("scaling", [None, SCALING], ids=["plain", "llama3.1"])
@pytest.mark.parametrize("kv_heads", [1, 2, 6])
def test_logits_and_all_gradients_equal_transformers(tied, scaling, kv_heads):
    config, model = build(tied_embeddings=tied, rope_scaling=scaling, n_kv_heads=kv_heads)
    twin = hf_twin(config, model)
    tokens = torch.randint(0, 97, (2, 50), generator=torch.Generator().manual_seed(0))
    ours, theirs = model(tokens), twin(tokens).logits
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
    for logits in (ours, theirs):
        torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()).backward()
    names, gradients = hf_names(config), {name: p.grad for name, p in twin.named_parameters()}
    for name, parameter in model.named_parameters():
        assert parameter.grad.abs().max() > 0
        torch.testing.assert_close(parameter.grad, gradients[names[name]], atol=1e-5, rtol=0, msg=name)


def test_packed_documents_equal_separate_ones():
    _, model = build()
    lengths = [7, 1, 12]
    tokens = torch.randint(0, 97, (1, sum(lengths)), generator=torch.Generator().manual_seed(1))
    positions = torch.cat([torch.arange(n) for n in lengths]).unsqueeze(0)
    ids = torch.cat([torch.full((n,), i) for i, n in enumerate(lengths)]).unsqueeze(0)
    packed = model(tokens, positions, ids)
    separate = torch.cat([model(part) for part in tokens.split(lengths, dim=1)], dim=1)
    torch.testing.assert_close(packed, separate, atol=1e-5, rtol=1e-5)


def test_the_future_is_not_seen():
    _, model = build()
    tokens = torch.randint(0, 97, (1, 20), generator=torch.Generator().manual_seed(2))
    changed = tokens.clone()
    changed[0, 12:] = (changed[0, 12:] + 1) % 97
    same = model(tokens)[:, :12], model(changed)[:, :12]
    torch.testing.assert_close(*same, atol=1e-6, rtol=0)


def test_positions_default_to_the_sequence():
    _, model = build()
    tokens = torch.randint(0, 97, (2, 9))
    torch.testing.assert_close(model(tokens), model(tokens, torch.arange(9).expand(2, 9)), atol=0, rtol=0)


def test_same_seed_same_weights_and_every_parameter_is_set():
    config, model = build()
    with torch.device("meta"):
        other = Llama3(config)
    other.to_empty(device="cpu")
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.fill_(float("nan"))
    other.init_weights(5)
    for (name, one), (_, two) in zip(model.named_parameters(), other.named_parameters(), strict=True):
        assert torch.equal(one, two), name
    other.init_weights(6)
    assert not torch.equal(model.tok_embeddings.weight, other.tok_embeddings.weight)
    assert not any(buffer.numel() for buffer in model.buffers())
