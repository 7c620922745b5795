"""How much memory this process holds: on a GPU by PyTorch's allocator, on a CPU by the kernel.

On a CPU there is no allocator of PyTorch's to ask, so both "allocated" and "reserved" are the
resident set size, which includes Python, PyTorch's libraries and the page tables.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch

__all__ = ["MemoryStats", "memory_stats", "reset_peak"]

_PROC_STATUS = Path("/proc/self/status")
_PROC_CLEAR_REFS = Path("/proc/self/clear_refs")
# Writing 5 resets the peak resident set size, see proc_pid_clear_refs(5).
_CLEAR_PEAK = "5"


@dataclass(frozen=True)
class MemoryStats:
    """Bytes on one device."""

    allocated: int
    """In live tensors (CPU: resident set size)."""
    reserved: int
    """Held by the caching allocator (CPU: resident set size)."""
    peak_allocated: int
    """Most that was allocated since the start or :func:`reset_peak`."""
    peak_reserved: int
    """Most that was reserved since the start or :func:`reset_peak`."""
    total: int
    """Size of the device's memory (CPU: the machine's RAM)."""


def memory_stats(device: torch.device) -> MemoryStats:
    """Measure ``device`` for this process.

    Args:
        device: A CUDA device or the CPU.

    Raises:
        ValueError: For a device of another type.
    """
    if device.type == "cuda":
        return MemoryStats(
            allocated=torch.cuda.memory_allocated(device),
            reserved=torch.cuda.memory_reserved(device),
            peak_allocated=torch.cuda.max_memory_allocated(device),
            peak_reserved=torch.cuda.max_memory_reserved(device),
            total=torch.cuda.get_device_properties(device).total_memory,
        )
    _require_cpu(device)
    resident = psutil.Process().memory_info().rss
    # The kernel updates the peak lazily, so it can lag behind the present size by a few pages.
    peak = max(resident, _peak_resident())
    return MemoryStats(resident, resident, peak, peak, psutil.virtual_memory().total)


def reset_peak(device: torch.device) -> bool:
    """Let the peaks start again from the present size.

    Args:
        device: A CUDA device or the CPU.

    Returns:
        Whether it was done.  Only Linux lets a process reset its peak resident set size, and some
        sandboxes forbid it; there the CPU's peaks go on counting from the start of the process.

    Raises:
        ValueError: For a device of another type.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return True
    _require_cpu(device)
    try:
        _PROC_CLEAR_REFS.write_text(_CLEAR_PEAK)
    except OSError:
        return False
    return True


def _require_cpu(device: torch.device) -> None:
    if device.type != "cpu":
        raise ValueError(f"device ({device}) has no memory statistics here: use a CUDA device or the CPU")


def _peak_resident() -> int:
    """Peak resident set size, bytes; on Linux from the counter that :func:`reset_peak` resets."""
    try:
        lines = _PROC_STATUS.read_text().splitlines()
    except OSError:
        return _peak_resident_since_start()
    kib = next((int(line.split()[1]) for line in lines if line.startswith("VmHWM:")), None)
    return _peak_resident_since_start() if kib is None else kib * 1024


def _peak_resident_since_start() -> int:
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().peak_wset)
    import resource  # POSIX only

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts bytes, Linux KiB
