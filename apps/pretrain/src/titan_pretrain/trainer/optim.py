"""AdamW with weight decay where it belongs, and the learning rate of each step."""

from __future__ import annotations

import math

import torch
from torch import nn

from titan_pretrain.config.sections import LRConfig, OptimConfig

__all__ = ["build_optimizer", "lr_at", "set_lr"]


def build_optimizer(model: nn.Module, config: OptimConfig) -> torch.optim.AdamW:
    """AdamW over ``model``; norms and embeddings are not decayed unless the config says so."""
    decayed: list[nn.Parameter] = []
    kept: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        is_matrix = parameter.ndim >= 2 and "tok_embeddings" not in name
        (decayed if is_matrix or config.decay_norms_and_embeddings else kept).append(parameter)
    groups = [{"params": decayed, "weight_decay": config.weight_decay}]
    if kept:
        groups.append({"params": kept, "weight_decay": 0.0})
    return torch.optim.AdamW(
        groups, lr=config.lr, betas=(config.beta1, config.beta2), eps=config.eps, fused=True
    )


def lr_at(step: int, steps: int, peak: float, config: LRConfig) -> float:
    """Learning rate of optimizer step ``step`` (1-based) of ``steps``.

    A function of the step alone: resuming needs no scheduler state.
    """
    if step <= config.warmup_steps:
        return peak * step / config.warmup_steps
    return peak * (config.min_ratio + (1.0 - config.min_ratio) * _decay(step, steps, config))


def _decay(step: int, steps: int, config: LRConfig) -> float:
    """1 after the warmup, 0 at the last step, by the schedule's shape."""
    if config.schedule == "constant":
        return 1.0
    start = config.warmup_steps
    if config.schedule == "wsd":
        start = max(start, round(steps * (1.0 - config.decay_fraction)))
    progress = min(1.0, max(0.0, (step - start) / max(1, steps - start)))
    if config.schedule == "cosine":
        return 0.5 * (1.0 + math.cos(math.pi * progress))
    return 1.0 - progress


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Use ``lr`` for the next step."""
    for group in optimizer.param_groups:
        group["lr"] = lr
