"""The global gradient norm and the world's verdict on it, in one small all-reduce.

A gradient that is infinite or not a number makes the sum of squares non-finite on its rank, and a
sum over ranks carries that to all of them.  So one number tells every rank both the norm and whether
to skip the step; ``torch.amp.GradScaler`` decides per mesh instead and lets ranks disagree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor, Replicate

__all__ = ["GradientNorm", "measure_gradients", "scale_gradients_"]


@dataclass(frozen=True)
class GradientNorm:
    """Global L2 norm of the unscaled gradient, the same on every rank.

    Attributes:
        value: the norm; not finite if any element of any rank's gradient is not.
    """

    value: float

    @property
    def finite(self) -> bool:
        """Whether all ranks may step."""
        return math.isfinite(self.value)


@torch.no_grad()
def measure_gradients(
    parameters: Iterable[Tensor], *, loss_scale: float = 1.0, group: dist.ProcessGroup | None = None
) -> GradientNorm:
    """L2 norm of all gradients over all ranks, each element counted once.

    Each of n copies of a shard counts one n-th, so that a bad element of any copy reaches all ranks.
    A plain gradient is a full copy on every rank of ``group``.

    Args:
        parameters: parameters whose ``.grad`` is looked at; those without one are passed over.
        loss_scale: factor the loss was multiplied with; the norm is divided by it.
        group: ranks that hold the model; default the world.

    Returns:
        The norm, synchronised with the host.
    """
    grads = [parameter.grad for parameter in parameters if parameter.grad is not None]
    locals_ = [_local(grad) for grad in grads]
    device = locals_[0].device if locals_ else torch.device("cpu")
    total = torch.zeros((), dtype=torch.float64, device=device)
    if locals_:
        norms = torch.stack(torch._foreach_norm(locals_, 2, dtype=torch.float32)).double()
        copies = torch.tensor([_copies(grad, group) for grad in grads], dtype=torch.float64, device=device)
        total += (norms.square() / copies).sum()
    if dist.is_initialized():
        dist.all_reduce(total, group=group)
    return GradientNorm(math.sqrt(total.item()) / loss_scale if total >= 0 else math.nan)


@torch.no_grad()
def scale_gradients_(
    parameters: Iterable[Tensor],
    norm: GradientNorm,
    *,
    loss_scale: float = 1.0,
    max_norm: float | None = None,
) -> None:
    """Divide the gradients by ``loss_scale`` and clip them to ``max_norm``, in one pass.

    Args:
        parameters: parameters whose ``.grad`` is scaled in place.
        norm: what :func:`measure_gradients` returned; must be finite.
        loss_scale: factor the loss was multiplied with.
        max_norm: global norm to clip to; None does not clip.
    """
    factor = 1.0 / loss_scale
    if max_norm is not None and norm.value > max_norm:
        factor *= max_norm / (norm.value + 1e-6)
    if factor == 1.0:
        return
    grads = [_local(parameter.grad) for parameter in parameters if parameter.grad is not None]
    if grads:
        torch._foreach_mul_(grads, factor)


def _local(grad: Tensor) -> Tensor:
    return grad.to_local() if isinstance(grad, DTensor) else grad


def _copies(grad: Tensor, group: dist.ProcessGroup | None) -> int:
    """How many ranks hold the same elements as this one."""
    if not isinstance(grad, DTensor):
        return dist.get_world_size(group) if dist.is_initialized() else 1
    sizes = grad.device_mesh.shape
    return math.prod(
        size
        for size, placement in zip(sizes, grad.placements, strict=True)
        if isinstance(placement, Replicate)
    )
