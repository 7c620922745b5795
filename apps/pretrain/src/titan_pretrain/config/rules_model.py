"""Rules about the model's shape and the training schedule."""

from __future__ import annotations

from titan_pretrain.config.rules import Findings, broken, nearest, rule
from titan_pretrain.config.sections import LossScalingConfig, TrainConfig

SMALLEST_BPE = 260
"""256 bytes and the special tokens."""


@rule("model.n_heads", "model.dim")
def heads_divide_dim(config: TrainConfig) -> Findings:
    """``dim = n_heads * head_dim``."""
    model = config.model
    if model.dim % model.n_heads:
        way_out = nearest(model.n_heads, lambda n: model.dim % (2 * n) == 0, high=model.dim)
        yield broken(config, "model.n_heads", f"must divide model.dim ({model.dim})", way_out)


@rule("model.n_heads", "model.dim")
def head_dim_is_even(config: TrainConfig) -> Findings:
    """RoPE rotates pairs of channels."""
    model = config.model
    if model.dim % model.n_heads == 0 and model.head_dim % 2:
        must = f"gives a head dimension of {model.head_dim}, but RoPE needs an even one"
        way_out = nearest(model.n_heads, lambda n: model.dim % (2 * n) == 0, high=model.dim)
        yield broken(config, "model.n_heads", must, way_out)


@rule("model.n_kv_heads", "model.n_heads")
def kv_heads_divide_heads(config: TrainConfig) -> Findings:
    """Every key-value head serves equally many query heads."""
    model = config.model
    if model.n_heads % model.n_kv_heads:
        way_out = nearest(model.n_kv_heads, lambda n: model.n_heads % n == 0, high=model.n_heads)
        yield broken(config, "model.n_kv_heads", f"must divide model.n_heads ({model.n_heads})", way_out)


@rule("model.rope_scaling.low_freq_factor", "model.rope_scaling.high_freq_factor")
def rope_factors_are_ordered(config: TrainConfig) -> Findings:
    """The blend between the two divides by their difference."""
    scaling = config.model.rope_scaling
    if scaling is not None and scaling.low_freq_factor >= scaling.high_freq_factor:
        must = f"must be below model.rope_scaling.high_freq_factor ({scaling.high_freq_factor})"
        yield broken(config, "model.rope_scaling.low_freq_factor", must, "Llama 3.1 uses 1.0 and 4.0")


@rule("tokenizer.vocab_size", "model.vocab_size")
def vocabulary_fits_model(config: TrainConfig) -> Findings:
    """Every token id needs a row of the embedding."""
    size = config.tokenizer.vocab_size
    if size is not None and size > config.model.vocab_size:
        must = f"must be at most model.vocab_size ({config.model.vocab_size})"
        yield broken(config, "tokenizer.vocab_size", must, f"use {config.model.vocab_size} or fewer")


@rule("model.vocab_size", "tokenizer.path", "tokenizer.vocab_size")
def model_holds_a_bpe(config: TrainConfig) -> Findings:
    """Without a tokenizer file a BPE of ``model.vocab_size`` is trained, and its alphabet is all bytes."""
    is_trained = config.tokenizer.path is None and config.tokenizer.vocab_size is None
    if is_trained and config.model.vocab_size < SMALLEST_BPE:
        must = f"must be at least {SMALLEST_BPE} for the byte-level BPE that is trained"
        yield broken(config, "model.vocab_size", must, f"use {SMALLEST_BPE}, or give tokenizer.path")


@rule("tokenizer.vocab_size", "tokenizer.path")
def vocabulary_has_one_source(config: TrainConfig) -> Findings:
    """A tokenizer file has its own size."""
    if config.tokenizer.path is not None and config.tokenizer.vocab_size is not None:
        must = "has no effect with tokenizer.path, whose file has its own size"
        yield broken(config, "tokenizer.vocab_size", must, "leave out one of the two")


@rule("lr.decay_fraction", "lr.schedule")
def wsd_decays(config: TrainConfig) -> Findings:
    """Its last phase is what sets it apart from a constant rate."""
    if config.lr.schedule == "wsd" and config.lr.decay_fraction == 0.0:
        must = 'must be above 0 with lr.schedule "wsd"'
        yield broken(config, "lr.decay_fraction", must, 'for no decay use lr.schedule = "constant"')


@rule("training.loss_scaling", "training.precision")
def loss_scaling_has_an_effect(config: TrainConfig) -> Findings:
    """fp32 and bf16 have the range to do without."""
    training = config.training
    if training.precision in ("fp32", "bf16") and training.loss_scaling != LossScalingConfig():
        must = f'has no effect with training.precision "{training.precision}"'
        yield broken(config, "training.loss_scaling", must, 'leave it out, or use "fp16" or "auto"')


@rule("activation.every_k", "activation.checkpoint", "model.n_layers")
def some_block_is_recomputed(config: TrainConfig) -> Findings:
    """Every k-th of fewer than k blocks is none."""
    layers = config.model.n_layers
    if config.activation.checkpoint == "every_k" and config.activation.every_k > layers:
        must = f"must be at most model.n_layers ({layers})"
        yield broken(config, "activation.every_k", must, f"use {layers} or fewer")
