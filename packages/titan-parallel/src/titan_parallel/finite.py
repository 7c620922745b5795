"""Whether a training state can be trained on: no NaN and no infinity in it, on any rank."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from titan_parallel.checkpoint import collective
from titan_parallel.checkpoint.state import clean_name
from titan_parallel.errors import CheckpointError

__all__ = ["nonfinite_tensors"]


@torch.no_grad()
def nonfinite_tensors(model: nn.Module, optimizer: Optimizer | None = None) -> list[str]:
    """Names of the tensors that hold a NaN or an infinity; collective, the same on every rank.

    Args:
        model: any sharding; its parameters and buffers are looked at.
        optimizer: its states are looked at too.

    Returns:
        Names such as ``layers.0.attention.wq.weight``, and ``exp_avg of ...`` for the optimizer's states.

    Raises:
        CheckpointError: another rank ended.
    """

    def find() -> list[str]:
        return [name for name, tensor in _tensors(model, optimizer) if not _is_finite(tensor)]

    of_ranks = collective.gather(find, doing="checking the training state", error=CheckpointError)
    return list(dict.fromkeys(name for names in of_ranks for name in names))


def _tensors(model: nn.Module, optimizer: Optimizer | None) -> Iterator[tuple[str, Tensor]]:
    for name, buffer in model.named_buffers():
        yield clean_name(name, model), buffer
    for name, parameter in model.named_parameters():
        yield clean_name(name, model), parameter
        states = optimizer.state.get(parameter, {}) if optimizer is not None else {}
        for key, value in states.items():
            if isinstance(value, Tensor):
                yield f"{key} of {clean_name(name, model)}", value


def _is_finite(tensor: Tensor) -> bool:
    local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    if not local.is_floating_point() or not local.numel():
        return True
    # The largest magnitude is not finite if any element is not; isfinite() would need memory of its own.
    return bool(torch.isfinite(torch.linalg.vector_norm(local, torch.inf)))
