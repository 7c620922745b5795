"""Weights from a seed, bit-equal under any sharding.

DTensor's random numbers repeat on every rank of a CPU mesh, and drawing the full tensor before
sharding needs its memory.  Here each element is a function of (seed, parameter name, index in the
full tensor), so a rank computes just its shard and any mesh gives the same weights.
"""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

__all__ = ["counter_trunc_normal_"]

# splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014),
# as signed 64-bit integers, which wrap in torch.
_GAMMA = 0x9E3779B97F4A7C15 - (1 << 64)
_MIX1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX2 = 0x94D049BB133111EB - (1 << 64)
_CHUNK = 1 << 16  # elements whose scratch stays in the cache


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _splitmix64(index: Tensor, key: int) -> Tensor:
    z = index * _GAMMA + key
    z = (z ^ _shift_right(z, 30)) * _MIX1
    z = (z ^ _shift_right(z, 27)) * _MIX2
    return z ^ _shift_right(z, 31)


def _key(seed: int, name: str) -> int:
    digest = hashlib.blake2b(f"{seed}/{name}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def _trunc_normal(index: Tensor, key: int, std: float, cutoff: float) -> Tensor:
    """Normal truncated at ``cutoff`` standard deviations, by inversion, in float64."""
    uniform = _shift_right(_splitmix64(index, key), 11).double() * 2.0**-53 + 2.0**-54  # in (0, 1)
    edge = math.erf(cutoff / math.sqrt(2.0))
    return torch.erfinv((2.0 * uniform - 1.0) * edge) * (math.sqrt(2.0) * std)


def _global_index(
    rows: Tensor, shape: torch.Size, sizes: tuple[int, ...], offsets: tuple[int, ...]
) -> Tensor:
    """Row-major index in the full tensor of the local elements in ``rows`` of dimension 0."""
    index = rows
    for dim in range(1, len(shape)):
        columns = torch.arange(offsets[dim], offsets[dim] + sizes[dim], device=rows.device)
        index = index.unsqueeze(-1) * shape[dim] + columns
    return index


@torch.no_grad()
def counter_trunc_normal_(
    parameter: Tensor, name: str, *, seed: int, std: float, cutoff: float = 3.0
) -> Tensor:
    """Fill ``parameter`` in place with a truncated normal that depends on the seed and name only.

    Args:
        parameter: a tensor or DTensor of at least one dimension, any sharding; float dtype.
        name: fully qualified name; two names give independent values.
        seed: the run's seed.
        std: standard deviation before truncation.
        cutoff: truncate at this many standard deviations.

    Returns:
        ``parameter``.
    """
    shape = parameter.shape
    if isinstance(parameter, DTensor):
        sizes, offsets = compute_local_shape_and_global_offset(
            shape, parameter.device_mesh, parameter.placements
        )
        local = parameter.to_local()
    else:
        sizes, offsets, local = tuple(shape), (0,) * len(shape), parameter
    key = _key(seed, name)
    step = max(1, _CHUNK // max(1, math.prod(sizes[1:])))  # bounds the float64 scratch memory
    for start in range(0, sizes[0] if local.numel() else 0, step):
        stop = min(start + step, sizes[0])
        rows = torch.arange(offsets[0] + start, offsets[0] + stop, device=local.device)
        index = _global_index(rows, shape, tuple(sizes), tuple(offsets))
        local[start:stop] = _trunc_normal(index, key, std, cutoff).to(local.dtype)
    return parameter
