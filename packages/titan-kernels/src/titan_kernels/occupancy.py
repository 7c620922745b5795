"""How many blocks of a kernel an SM of Volta or Turing holds at once.

Source: NVIDIA's CUDA Occupancy Calculator (its rules and its table of compute capability 7.0 and 7.5),
as in ``cuda_occupancy.h``.
"""

from __future__ import annotations

from dataclasses import dataclass

from titan_kernels.images import KernelInfo

__all__ = ["Occupancy", "occupancy"]

_WARP = 32
_REGISTERS_PER_SM = 65536
_REGISTER_UNIT = 256  # a warp's registers are allocated in units of this
_SUB_PARTITIONS = 4  # each holds a quarter of the registers, and whole warps only
_SHARED_UNIT = 256


@dataclass(frozen=True)
class _Limits:
    warps: int
    blocks: int
    shared: int


_LIMITS = {(7, 0): _Limits(64, 32, 96 * 1024), (7, 5): _Limits(32, 16, 64 * 1024)}


@dataclass(frozen=True)
class Occupancy:
    """Blocks and warps that one SM holds.

    Attributes:
        blocks: Resident blocks; 0 where a single block does not fit.
        warps: Resident warps.
        fraction: ``warps`` as a part of what the SM could hold.
        limiter: What allows no further block: ``"warps"``, ``"blocks"``, ``"registers"`` or ``"shared"``.
    """

    blocks: int
    warps: int
    fraction: float
    limiter: str


def occupancy(info: KernelInfo, block: int, dynamic_shared: int, capability: tuple[int, int]) -> Occupancy:
    """Occupancy of a launch.

    Args:
        info: The kernel's facts for that architecture.
        block: Threads per block.
        dynamic_shared: Dynamic shared memory of the launch, bytes.
        capability: ``(7, 0)`` or ``(7, 5)``.

    Raises:
        ValueError: another capability, or a block the kernel is not built for.
    """
    if capability not in _LIMITS:
        raise ValueError(f"capability {capability} is unknown: use (7, 0) or (7, 5)")
    if not 1 <= block <= info.max_threads:
        raise ValueError(f"block ({block}) must lie between 1 and {info.max_threads}")
    limits = _LIMITS[capability]
    warps = -(-block // _WARP)
    by_limiter = {
        "warps": limits.warps // warps,
        "blocks": limits.blocks,
        "registers": _warps_by_registers(info.registers) // warps,
        "shared": _blocks_by_shared(info.static_shared + dynamic_shared, limits),
    }
    limiter = min(by_limiter, key=lambda name: by_limiter[name])
    blocks = by_limiter[limiter]
    return Occupancy(blocks, blocks * warps, blocks * warps / limits.warps, limiter)


def _warps_by_registers(registers: int) -> int:
    """Warps whose registers fit; a sub-partition holds whole warps."""
    per_warp = -(-max(registers, 1) * _WARP // _REGISTER_UNIT) * _REGISTER_UNIT
    return _REGISTERS_PER_SM // _SUB_PARTITIONS // per_warp * _SUB_PARTITIONS


def _blocks_by_shared(size: int, limits: _Limits) -> int:
    rounded = -(-size // _SHARED_UNIT) * _SHARED_UNIT
    return limits.shared // rounded if rounded else limits.blocks
