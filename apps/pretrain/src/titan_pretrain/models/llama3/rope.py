"""Rotary position embedding (Su et al., arXiv:2104.09864), half-split as in Hugging Face's Llama."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from titan_pretrain.config.sections import ModelConfig, RopeScalingConfig

__all__ = ["apply_rope", "rope_cos_sin"]


def rope_cos_sin(config: ModelConfig, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotation angles.

    Computed from the positions in every forward pass: it costs next to nothing, and a model without
    buffers has nothing that meta-device initialisation could leave unset.

    Args:
        config: gives head dimension, base and scaling.
        positions: (B, T) int64, position of each token in its document.

    Returns:
        cos and sin, each (B, 1, T, D / 2) fp32.
    """
    exponents = torch.arange(0, config.head_dim, 2, device=positions.device, dtype=torch.float32)
    frequencies = config.rope_theta ** -(exponents / config.head_dim)
    if config.rope_scaling is not None:
        frequencies = _scale_frequencies(frequencies, config.rope_scaling)
    angles = positions[:, None, :, None].float() * frequencies
    return angles.cos(), angles.sin()


def _scale_frequencies(frequencies: Tensor, scaling: RopeScalingConfig) -> Tensor:
    """Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, blended in between."""
    rotations = scaling.original_max_seq_len * frequencies / (2.0 * math.pi)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    keep = ((rotations - low) / (high - low)).clamp(0.0, 1.0)
    return keep * frequencies + (1.0 - keep) * frequencies / scaling.factor


def apply_rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate the pairs (x[i], x[i + D/2]) of each head.

    Args:
        x: (B, H, T, D).
        cos: (B, 1, T, D / 2).
        sin: (B, 1, T, D / 2).

    Returns:
        (B, H, T, D) in ``x``'s dtype.
    """
    first, second = x.chunk(2, dim=-1)
    cos, sin = cos.to(x.dtype), sin.to(x.dtype)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
