"""Cross-entropy in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor

from titan_kernels.numerics import compute_dtype

__all__ = ["backward", "backward_inplace", "finish", "forward", "partial"]


def forward(
    logits: Tensor,
    target: Tensor,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    softcap: float,
    inplace_gradient: bool,
) -> tuple[Tensor, Tensor]:
    """Loss and log-sum-exp per row.  ``inplace_gradient`` concerns the backward only."""
    parts = partial(logits, target, 0, ignore_index, softcap)
    _check_targets(target, logits.shape[-1], ignore_index)
    return finish(*parts, target, logits.shape[-1], ignore_index, label_smoothing, z_loss)


def _check_targets(target: Tensor, classes: int, ignore_index: int) -> None:
    """Only where it costs no synchronisation; elsewhere such rows are NaN."""
    if target.device.type != "cpu":
        return
    wrong = target[_outside(target, classes) & (target != ignore_index)]
    if wrong.numel():
        raise IndexError(
            f"target ({int(wrong[0])}): it must be a class from 0 to {classes - 1}, "
            f"or ignore_index ({ignore_index}) for a row that doesn't count"
        )


def _outside(target: Tensor, classes: int) -> Tensor:
    return (target < 0) | (target >= classes)


def _capped(logits: Tensor, softcap: float) -> Tensor:
    wide = logits.to(compute_dtype(logits.dtype))
    return softcap * torch.tanh(wide / softcap) if softcap > 0 else wide


def partial(
    logits: Tensor, target: Tensor, first_class: int, ignore_index: int, softcap: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Per row: the maximum, the sum of exp(logit - maximum), the target's logit or 0, the sum of logits."""
    wide = _capped(logits, softcap)
    counts = target != ignore_index
    place = target - first_class
    here = counts & ~_outside(place, logits.shape[-1])
    maximum = wide.amax(-1)
    finite = maximum.masked_fill(maximum == -torch.inf, 0)
    sum_exp = (wide - finite.unsqueeze(-1)).exp().sum(-1)
    picked = wide.gather(-1, place.where(here, 0).unsqueeze(-1)).squeeze(-1)
    parts = ((maximum, counts), (sum_exp, counts), (picked, here), (wide.sum(-1), counts))
    return tuple(part.masked_fill(~mask, 0) for part, mask in parts)  # type: ignore[return-value]


def finish(
    maximum: Tensor,
    sum_exp: Tensor,
    target_logit: Tensor,
    total: Tensor,
    target: Tensor,
    classes: int,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
) -> tuple[Tensor, Tensor]:
    """Loss and log-sum-exp per row from the parts of the whole vocabulary."""
    log_sum = sum_exp.log()
    lse = maximum + log_sum
    # In this order: without z-loss, the square of a large logit is no infinity that 0 turns into NaN.
    loss = log_sum + (1 - label_smoothing) * (maximum - target_logit) + z_loss * lse * lse
    if label_smoothing > 0:
        loss = loss + label_smoothing * (maximum - total / classes)
    loss = loss.masked_fill(_outside(target, classes), torch.nan)
    ignored = target == ignore_index
    return loss.masked_fill(ignored, 0), lse.masked_fill(ignored, 0)


def backward(
    grad: Tensor,
    logits: Tensor,
    target: Tensor,
    lse: Tensor,
    first_class: int,
    classes: int,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    softcap: float,
) -> Tensor:
    """Gradient of the logits, given the one of each row's loss."""
    capped = _capped(logits, softcap)
    grad = grad.masked_fill(_outside(target, classes), torch.nan)
    slope = grad * (1 + 2 * z_loss * lse)
    dz = slope.unsqueeze(-1) * (capped - lse.unsqueeze(-1)).exp()
    dz = dz - (grad * (label_smoothing / classes)).unsqueeze(-1)
    place = target - first_class
    here = ~_outside(place, logits.shape[-1])
    of_target = (grad * (1 - label_smoothing)).masked_fill(~here, 0)
    dz.scatter_add_(-1, place.where(here, 0).unsqueeze(-1), -of_target.unsqueeze(-1))
    if softcap > 0:
        dz = dz * (1 - (capped / softcap).square())
    return dz.masked_fill((target == ignore_index).unsqueeze(-1), 0).to(logits.dtype)


def backward_inplace(
    grad: Tensor,
    logits: Tensor,
    target: Tensor,
    lse: Tensor,
    first_class: int,
    classes: int,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    softcap: float,
) -> None:
    """The same, written into ``logits``."""
    options = (first_class, classes, ignore_index, label_smoothing, z_loss, softcap)
    logits.copy_(backward(grad, logits, target, lse, *options))
