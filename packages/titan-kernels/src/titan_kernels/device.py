"""What a GPU can do: sizes and peak rates by card, from NVIDIA's data sheets and white papers.

The compute capability alone does not tell.  sm_75 covers the Titan RTX (full-rate fp32
accumulation), the RTX 20 series (half rate) and the GTX 16 series (no tensor cores at all), so
:func:`lookup` goes by name, capability and memory together, and answers ``None`` for a card it does
not know: no figure is better than a wrong one.

Nothing here starts CUDA except :func:`current`.
"""

from __future__ import annotations

import re

import torch

from titan_kernels._cards import CARDS, DeviceFacts

__all__ = ["DeviceFacts", "current", "has_tensor_cores", "lookup", "native_bf16"]

_GIB = 2**30
# A driver reports less than the data sheet's size: ECC and the firmware take up to a tenth of it.
_MEMORY_LOW, _MEMORY_HIGH = 0.85, 1.05
# Turing chips (TU116, TU117) that execute half precision in their ordinary units.
_TURING_WITHOUT_TENSOR_CORES = re.compile(r"\bGTX 16\d0\b|\bMX[45]50\b|\bT\d{3,4}\b")


def _short(name: str) -> str:
    """The name without the prefixes that drivers add or drop from release to release."""
    for prefix in ("NVIDIA ", "Tesla ", "GeForce "):
        name = name.removeprefix(prefix)
    return name


def lookup(name: str, capability: tuple[int, int], memory: int | None = None) -> DeviceFacts | None:
    """Facts of a card.

    Args:
        name: The driver's name for it, such as ``"NVIDIA TITAN RTX"`` or ``"Tesla V100-SXM2-16GB"``.
        capability: Compute capability, such as ``(7, 5)``.
        memory: Total memory in bytes as the driver reports it.  It tells cards of one name apart
            and uncovers partitions (MIG, vGPU), which do not have the whole card's rates.

    Returns:
        The facts, or ``None`` for an unknown card and where the memory is needed but not given.
    """
    found = [
        card
        for card in CARDS
        if card.capability == capability
        and re.fullmatch(card.name_pattern, _short(name))
        and (memory is None or _MEMORY_LOW <= memory / _GIB / card.memory_gib <= _MEMORY_HIGH)
    ]
    return found[0] if len(found) == 1 else None


def current(device: torch.device | None = None) -> DeviceFacts | None:
    """Facts of a CUDA device of this process; ``None`` for a CPU, without CUDA, or an unknown card.

    Args:
        device: The device to look at; the current CUDA device when absent.
    """
    if (device is not None and device.type != "cuda") or not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(torch.cuda.current_device() if device is None else device)
    return lookup(properties.name, (properties.major, properties.minor), properties.total_memory)


def native_bf16(capability: tuple[int, int]) -> bool:
    """Whether the hardware computes in bfloat16: from Ampere (8.0) on.

    ``torch.cuda.is_bf16_supported()`` is no substitute: it also says yes where bfloat16 is emulated.
    """
    return capability >= (8, 0)


def has_tensor_cores(name: str, capability: tuple[int, int]) -> bool:
    """Whether the card has tensor cores: from Volta (7.0) on, except the GTX 16 series and its kin.

    Args:
        name: The driver's name for the card.
        capability: Compute capability, such as ``(7, 5)``.
    """
    if capability == (7, 5):
        return _TURING_WITHOUT_TENSOR_CORES.search(name) is None
    return capability >= (7, 0)
