"""Triton kernels of this room: one program per row, which walks over the row in blocks."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from titan_kernels.rows import as_rows

__all__ = ["backward", "backward_inplace", "forward", "partial"]

_MOST_COLUMNS = 4096


@triton.jit
def _forward_kernel(  # type: ignore[no-untyped-def]
    logits, target, loss, lse, maximum, sum_exp, target_logit, total, n, first_class, ignore_index,
    smoothing, z_loss, PARTIAL: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    wanted = tl.load(target + row)
    place = wanted - first_class
    here = (place >= 0) & (place < n)
    counts = wanted != ignore_index
    columns = tl.where(counts, n, 0)
    picked = tl.load(logits + row * n + place, mask=here & counts, other=0.0).to(tl.float32)
    largest = tl.full((BLOCK,), float("-inf"), tl.float32)
    sums = tl.zeros((BLOCK,), tl.float32)
    logit_sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(logits + row * n + at, mask=at < n, other=float("-inf")).to(tl.float32)
        new = tl.maximum(largest, x)
        base = tl.where(new == float("-inf"), 0.0, new)
        sums = sums * tl.exp(largest - base) + tl.exp(x - base)
        logit_sums += tl.where(at < n, x, 0.0)
        largest = new
    top = tl.max(largest, 0)
    summed = tl.sum(sums * tl.exp(largest - tl.where(top == float("-inf"), 0.0, top)), 0)
    logit_sum = tl.sum(logit_sums, 0)
    if PARTIAL:
        tl.store(maximum + row, tl.where(counts, top, 0.0))
        tl.store(sum_exp + row, summed)
        tl.store(target_logit + row, picked)
        tl.store(total + row, logit_sum)
    else:
        log_sum = tl.log(summed)
        row_lse = top + log_sum
        row_loss = log_sum + (1.0 - smoothing) * (top - picked) + z_loss * row_lse * row_lse
        row_loss += tl.where(smoothing > 0, smoothing * (top - logit_sum / n), 0.0)
        row_loss = tl.where(here, row_loss, float("nan"))
        tl.store(loss + row, tl.where(counts, row_loss, 0.0))
        tl.store(lse + row, tl.where(counts, row_lse, 0.0))


@triton.jit
def _backward_kernel(  # type: ignore[no-untyped-def]
    grad, logits, target, lse, out, n, first_class, classes, ignore_index, smoothing, z_loss,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    wanted = tl.load(target + row)
    row_lse = tl.load(lse + row)
    exists = (wanted >= 0) & (wanted < classes)
    row_grad = tl.where(exists, tl.load(grad + row), float("nan"))
    of_softmax = row_grad * (1.0 + 2.0 * z_loss * row_lse)
    of_all = row_grad * smoothing / classes
    for start in range(0, n, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(logits + row * n + at, mask=at < n, other=0.0).to(tl.float32)
        d = of_softmax * tl.exp(x - row_lse) - of_all
        d -= tl.where(at == wanted - first_class, row_grad * (1.0 - smoothing), 0.0)
        d = tl.where(wanted == ignore_index, 0.0, d)
        tl.store(out + row * n + at, d.to(out.dtype.element_ty), mask=at < n)


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
    unused = loss
    results = (loss, lse, unused, unused, unused, unused)
    _forward(logits, target, results, (0, ignore_index, label_smoothing, z_loss), partial=False)
    return loss, lse


def partial(
    logits: Tensor, target: Tensor, first_class: int, ignore_index: int, softcap: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Per row: the maximum, the sum of exp(logit - maximum), the target's logit or 0, the sum of logits."""
    maximum, sum_exp, target_logit, total = parts = _statistics(target, 4)
    unused = maximum
    _forward(logits, target, (unused, unused, *parts), (first_class, ignore_index, 0.0, 0.0), partial=True)
    return maximum, sum_exp, target_logit, total


def _statistics(target: Tensor, count: int) -> list[Tensor]:
    return [target.new_empty(target.shape, dtype=torch.float32) for _ in range(count)]


def _forward(
    logits: Tensor,
    target: Tensor,
    results: tuple[Tensor, ...],
    options: tuple[int, int, float, float],
    partial: bool,
) -> None:
    rows = as_rows(logits)
    if target.numel():
        _forward_kernel[(target.numel(),)](
            rows, target.contiguous(), *results, rows.shape[1], *options, partial, **_shape(rows)
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
    _backward(grad, logits, target, lse, logits, options)


def _backward(
    grad: Tensor,
    logits: Tensor,
    target: Tensor,
    lse: Tensor,
    out: Tensor,
    options: tuple[int | float, ...],
) -> None:
    if logits.numel():
        _backward_kernel[(target.numel(),)](
            grad.contiguous(), logits, target.contiguous(), lse.contiguous(), out, logits.shape[-1],
            *options[:-1], **_shape(logits),
        )  # fmt: skip


def _shape(rows: Tensor) -> dict[str, int]:
    block = min(_MOST_COLUMNS, triton.next_power_of_2(rows.shape[-1]))
    return {"BLOCK": block, "num_warps": min(16, max(1, block // 512))}
