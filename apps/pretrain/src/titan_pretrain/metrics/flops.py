"""Model FLOPs per token and model FLOPs utilization (Chowdhery et al., PaLM, arXiv:2204.02311, app. B).

Counted are the matrix products that the model's mathematics asks for, forward once and backward
twice: neither recomputation under activation checkpointing nor elementwise work.  Attention counts
the full square of the sequence, as PaLM does, although a causal kernel needs half of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from titan_pretrain.config.sections import ModelConfig

if TYPE_CHECKING:
    import torch

__all__ = [
    "flops_per_token",
    "matmul_parameters",
    "model_flops_utilization",
    "model_tflops",
    "num_parameters",
]


def matmul_parameters(model: ModelConfig) -> int:
    """Weights that take part in a matrix product.

    The embedding does not, for it is looked up; the output projection does, also when it is tied to
    the embedding.
    """
    head_dim = model.head_dim
    attention = 2 * model.dim * model.n_heads * head_dim + 2 * model.dim * model.n_kv_heads * head_dim
    feed_forward = 3 * model.dim * model.ffn_dim
    return model.n_layers * (attention + feed_forward) + model.vocab_size * model.dim


def num_parameters(model: ModelConfig) -> int:
    """All trainable parameters."""
    norms = (2 * model.n_layers + 1) * model.dim
    embedding = 0 if model.tied_embeddings else model.vocab_size * model.dim
    return matmul_parameters(model) + embedding + norms


def flops_per_token(model: ModelConfig, seq_len: int) -> int:
    """FLOPs to train on one token: ``6 N + 12 L H E T``.

    With N matmul weights, L layers, H query heads of width E and T = ``seq_len``.  Grouped-query
    attention makes N smaller; its scores cost as much as with full key and value heads.
    """
    attention = 12 * model.n_layers * model.n_heads * model.head_dim * seq_len
    return 6 * matmul_parameters(model) + attention


def model_tflops(model: ModelConfig, seq_len: int, tokens_per_s: float) -> float:
    """Model TFLOP/s at a throughput of ``tokens_per_s``."""
    return flops_per_token(model, seq_len) * tokens_per_s / 1e12


def model_flops_utilization(
    model: ModelConfig, seq_len: int, tokens_per_s: float, *, device: torch.device, dtype: torch.dtype
) -> float | None:
    """Share of the device's peak that the model's FLOPs take, 0 to 1.

    Args:
        model: The model.
        seq_len: Tokens per sequence.
        tokens_per_s: Throughput of one device.
        device: Whose peak counts.
        dtype: Compute dtype; fp16 and bf16 count tensor cores.

    Returns:
        ``None`` for a CPU, for a GPU that :mod:`titan_kernels.device` does not know, and for a dtype
        it has no unit for.
    """
    from titan_kernels import device as device_facts  # loads torch, which the report does without

    facts = device_facts.current(device)
    peak = None if facts is None else facts.peak_tflops(dtype)
    return None if peak is None else model_tflops(model, seq_len, tokens_per_s) / peak
