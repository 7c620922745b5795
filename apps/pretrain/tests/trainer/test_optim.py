import itertools
import math

import pytest
import torch

from titan_pretrain.config.sections import LRConfig, ModelConfig, OptimConfig
from titan_pretrain.models.llama3 import Llama3
from titan_pretrain.trainer.optim import build_optimizer, lr_at, set_lr


def curve(steps=100, **config):
    return [lr_at(step, steps, 1.0, LRConfig(**config)) for step in range(1, steps + 1)]


@pytest.mark.parametrize("schedule", ["cosine", "linear", "wsd", "constant"])
def test_warmup_is_linear_and_reaches_the_peak(schedule):
    values = curve(schedule=schedule, warmup_steps=10, min_ratio=0.1)
    assert values[:10] == pytest.approx([step / 10 for step in range(1, 11)])
    assert max(values) == values[9] == 1.0


@pytest.mark.parametrize(
    ("schedule", "middle"), [("cosine", 0.55), ("linear", 0.55), ("wsd", 1.0), ("constant", 1.0)]
)
def test_shapes(schedule, middle):
    values = curve(schedule=schedule, warmup_steps=0, min_ratio=0.1, decay_fraction=0.2)
    assert values[49] == pytest.approx(middle, abs=0.01)
    assert values[-1] == pytest.approx(1.0 if schedule == "constant" else 0.1)
    assert all(a >= b - 1e-12 for a, b in itertools.pairwise(values))


def test_wsd_decays_over_the_last_steps_only():
    values = curve(schedule="wsd", warmup_steps=10, decay_fraction=0.2, min_ratio=0.0)
    assert values[79] == 1.0
    assert values[80] < 1.0
    assert values[89] == pytest.approx(0.5)


def test_cosine_formula():
    values = curve(schedule="cosine", warmup_steps=20, min_ratio=0.0)
    assert values[39] == pytest.approx(0.5 * (1 + math.cos(math.pi * 20 / 80)))


def test_past_the_end_the_rate_stays_at_its_floor():
    assert lr_at(500, 100, 1.0, LRConfig(warmup_steps=10, min_ratio=0.1)) == pytest.approx(0.1)


def decayed(**config):
    model = Llama3(ModelConfig(dim=32, n_heads=4, n_kv_heads=2, n_layers=1, ffn_dim=48, vocab_size=50))
    optimizer = build_optimizer(model, OptimConfig(**config))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {
        names[id(parameter)]: group["weight_decay"]
        for group in optimizer.param_groups
        for parameter in group["params"]
    }


def test_norms_and_embeddings_are_not_decayed():
    decay = decayed(weight_decay=0.3)
    assert len(decay) == 12
    kept = {name for name, value in decay.items() if value == 0.0}
    assert kept == {
        "tok_embeddings.weight",
        "norm.weight",
        "layers.0.attention_norm.weight",
        "layers.0.ffn_norm.weight",
    }
    assert {value for name, value in decay.items() if name not in kept} == {0.3}


def test_everything_is_decayed_when_asked():
    assert set(decayed(weight_decay=0.3, decay_norms_and_embeddings=True).values()) == {0.3}


def test_step_equals_the_formula():
    """One AdamW step against Loshchilov and Hutter's algorithm 2, in float64."""
    model = torch.nn.Linear(3, 2, bias=False)
    config = OptimConfig(lr=0.1, beta1=0.8, beta2=0.9, eps=1e-3, weight_decay=0.5)
    optimizer = build_optimizer(model, config)
    set_lr(optimizer, 0.05)
    weight = model.weight.detach().double().clone()
    grad = torch.tensor([[1.0, -2.0, 0.5], [0.0, 3.0, -1.0]])
    model.weight.grad = grad.clone()
    optimizer.step()
    g = grad.double()
    m_hat, v_hat = g, g * g  # bias correction undoes the first step's factors
    expected = weight * (1 - 0.05 * 0.5) - 0.05 * m_hat / (v_hat.sqrt() + 1e-3)
    torch.testing.assert_close(model.weight.detach().double(), expected, atol=1e-6, rtol=0)
