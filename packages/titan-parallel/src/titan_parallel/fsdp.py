"""FSDP2 over a model's blocks, summing gradients instead of averaging them.

The trainer divides the loss by the *global* number of valid tokens, so the gradients of the ranks
add up to the right one; an average would weigh ranks with few valid tokens too much.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from titan_parallel.precision import Precision

__all__ = ["shard_model"]


def shard_model(
    model: nn.Module,
    blocks: Iterable[nn.Module],
    mesh: DeviceMesh,
    *,
    precision: Precision,
    reshard_after_forward: bool = True,
) -> nn.Module:
    """Shard ``model`` in place over ``mesh``, each of ``blocks`` as one FSDP unit, the rest as another.

    Args:
        model: may be on the meta device; materialise it afterwards with ``to_empty``.
        blocks: submodules that are gathered one at a time.
        mesh: axes ``(dp_replicate, dp_shard)``.
        precision: compute dtype; gradients are always reduced in fp32, because FSDP2 pre-divides
            an fp16 reduction by the square root of the ranks only, which overflows.
        reshard_after_forward: free a block's gathered weights after its forward pass.

    Returns:
        ``model``, unchanged when it is a single process in fp32, where FSDP2 would only copy.
    """
    if mesh.size() == 1 and not precision.mixed:
        return model
    policy = MixedPrecisionPolicy(
        param_dtype=precision.compute_dtype if precision.mixed else None,
        reduce_dtype=torch.float32,
        cast_forward_inputs=False,  # positions and masks must keep their dtypes
    )
    for block in blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard_after_forward)
    # The root's weights are used first and last, so freeing them in between saves nothing.
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    for module in _fsdp_modules(model):
        module.set_gradient_divide_factor(1.0)
        module.set_force_sum_reduction_for_comms(True)  # gloo has no scaled sum
    return model


def _fsdp_modules(model: nn.Module) -> Iterable[FSDPModule]:
    return (module for module in model.modules() if isinstance(module, FSDPModule))
