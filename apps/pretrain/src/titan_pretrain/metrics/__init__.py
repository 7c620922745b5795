"""What a run measures and writes down.

* :mod:`~titan_pretrain.metrics.sinks`: metrics.jsonl, TensorBoard, Weights & Biases
* :mod:`~titan_pretrain.metrics.progress`: the terminal
* :mod:`~titan_pretrain.metrics.report`: report.html
* :mod:`~titan_pretrain.metrics.outcome`: how the run ended
* :mod:`~titan_pretrain.metrics.flops`: model FLOPs and MFU
* :mod:`~titan_pretrain.metrics.environment`: the machine and the versions

This module imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["StepMetrics"]


@dataclass(frozen=True)
class StepMetrics:
    """One logged optimizer step of the whole run (all ranks)."""

    step: int
    """Optimizer steps done, this one and skipped ones included."""
    loss: float
    """Mean cross-entropy per valid token, nats; not finite on a step that fp16 scaling skipped."""
    grad_norm: float | None
    """Global norm before clipping; ``None`` when it was not measured."""
    lr: float
    """Learning rate of this step."""
    tokens: int
    """Tokens seen since the first step."""
    tokens_per_s: float
    """Throughput since the row before."""
    loss_scale: float | None
    """fp16 loss scale; ``None`` without loss scaling."""
    skipped: int
    """Steps skipped for non-finite gradients since the first step."""
    memory_gib: float
    """Peak memory of rank 0's device, GiB (on a CPU: of the process)."""
    mfu: float | None
    """Model FLOPs utilization, 0 to 1; ``None`` where the device's peak is not known."""
