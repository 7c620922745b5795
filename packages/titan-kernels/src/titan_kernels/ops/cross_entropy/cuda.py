"""Launches of the CUDA kernels of this room."""

from __future__ import annotations

import torch
from torch import Tensor

from titan_kernels.launch import launch
from titan_kernels.platforms import cuda_ready, suffix
from titan_kernels.registry import YES, Verdict, no
from titan_kernels.rows import as_rows

__all__ = [
    "backward",
    "backward_inplace",
    "contiguous_logits",
    "forward",
    "partial",
    "supports",
    "supports_backward",
    "supports_inplace",
]

_UNIT = "cross_entropy"
_MOST_THREADS = 512
_WARP = 32
_VECTOR = 16  # bytes


def supports(logits: Tensor, target: Tensor, *options: object) -> Verdict:
    """Whether :func:`forward` and :func:`partial` serve the call."""
    ready = cuda_ready(logits, target)
    if ready.ok and logits.shape[-1] == 0:
        return no("there are no classes")
    return ready


def supports_backward(grad: Tensor, logits: Tensor, target: Tensor, lse: Tensor, *options: object) -> Verdict:
    """Whether :func:`backward` serves the call."""
    ready = cuda_ready(grad, logits, target, lse)
    if ready.ok and torch.float32 != grad.dtype:
        return no(f"the gradient of the loss is {grad.dtype}, not fp32")
    return ready


def contiguous_logits(grad: Tensor, logits: Tensor, *_: object) -> Verdict:
    """Whether a gradient can be written over the logits: as rows, without a copy."""
    return YES if logits.is_contiguous() else no("the logits are not contiguous rows")


def supports_inplace(grad: Tensor, logits: Tensor, target: Tensor, lse: Tensor, *options: object) -> Verdict:
    """Whether :func:`backward_inplace` serves the call."""
    where = contiguous_logits(grad, logits)
    return supports_backward(grad, logits, target, lse) if where.ok else where


def _block(logits: Tensor) -> int:
    """Threads for a row: one per vector, as far as a block goes."""
    vectors = -(-logits.shape[-1] * logits.dtype.itemsize // _VECTOR)
    return min(_MOST_THREADS, max(1, -(-vectors // _WARP)) * _WARP)


def _rows(logits: Tensor) -> Tensor:
    """Contiguous logits as (rows, classes), in the same memory whatever its alignment."""
    return logits.flatten(0, -2) if logits.dim() > 1 else logits.unsqueeze(0)


def _statistics(target: Tensor, count: int) -> list[Tensor]:
    return [target.new_empty(target.shape, dtype=torch.float32) for _ in range(count)]


def forward(
    logits: Tensor,
    target: Tensor,
    ignore_index: int,
    label_smoothing: float,
    z_loss: float,
    softcap: float,
    inplace_gradient: bool,
) -> tuple[Tensor, Tensor]:
    """Loss and log-sum-exp per row."""
    loss, lse = _statistics(target, 2)
    _forward(logits, target, (loss, lse, *[None] * 4), (0, ignore_index, label_smoothing, z_loss, softcap))
    return loss, lse


def partial(
    logits: Tensor, target: Tensor, first_class: int, ignore_index: int, softcap: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Per row: the maximum, the sum of exp(logit - maximum), the target's logit or 0, the sum of logits."""
    maximum, sum_exp, target_logit, total = parts = _statistics(target, 4)
    _forward(logits, target, (None, None, *parts), (first_class, ignore_index, 0.0, 0.0, softcap))
    return maximum, sum_exp, target_logit, total


def _forward(
    logits: Tensor,
    target: Tensor,
    results: tuple[Tensor | None, ...],
    options: tuple[int, int, float, float, float],
) -> None:
    rows = _rows(logits.contiguous())
    launch(
        _UNIT,
        f"cross_entropy_forward_{suffix(logits.dtype)}",
        rows.shape[0],
        _block(rows),
        (rows, target.contiguous(), *results, rows.shape[1], *options),
    )


def backward(grad: Tensor, logits: Tensor, target: Tensor, lse: Tensor, *options: int | float) -> Tensor:
    """Gradient of the logits, given the one of each row's loss."""
    rows = as_rows(logits)
    out = torch.empty_like(rows)
    _backward(grad, rows, target, lse, out, options)
    return out.view(logits.shape)


def backward_inplace(
    grad: Tensor, logits: Tensor, target: Tensor, lse: Tensor, *options: int | float
) -> None:
    """The same, written into the contiguous ``logits``."""
    rows = _rows(logits)
    _backward(grad, rows, target, lse, rows, options)


def _backward(
    grad: Tensor, rows: Tensor, target: Tensor, lse: Tensor, out: Tensor, options: tuple[int | float, ...]
) -> None:
    launch(
        _UNIT,
        f"cross_entropy_backward_{suffix(rows.dtype)}",
        rows.shape[0],
        _block(rows),
        (grad.contiguous(), rows, target.contiguous(), lse.contiguous(), out, rows.shape[1], *options),
    )
