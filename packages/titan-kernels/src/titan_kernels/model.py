"""A static performance model: how long a kernel should take on a card, and what binds it.

No kernel runs on a GPU for this.  The emulator gives exact counts (sectors, bank conflicts, matrix
instructions), the compiled code gives the mix of instructions, the data sheet gives the card's rates.
Each unit of the machine would need a certain time for its share; the slowest one binds the kernel.

Assumptions, to be confronted with measurements:

1. DRAM moves each distinct sector of a launch once (the L2 cache catches repeated use) and reaches
   85 % of the data sheet's bandwidth on Turing and 82 % on Volta, as streaming kernels do.
2. Every sector requested goes through L2 at 20 bytes per cycle and SM with a block: 2155 GB/s on V100
   and 1270 GB/s on T4 (Jia et al., arXiv:1804.06826 and arXiv:1903.07486).
3. Shared memory serves one wavefront per cycle and SM.
4. The SM issues 4 warp instructions per cycle.  Per cycle it completes 64 lanes of fp32 and of integer
   arithmetic, 16 of special functions and conversions, 32 of shuffles and of memory instructions (CUDA
   C++ Programming Guide, throughput of native arithmetic instructions, capability 7.x).
5. The instructions around a memory access are executed as often as the access: the executed mix is
   the mix of the kernel's outermost loops that access memory (of the whole kernel where there are
   none), scaled to the emulator's number of memory requests.
6. The units work side by side, so the slowest decides.
7. What hides latency is warps.  A warp waits for one load from global memory at a time, 500 cycles, so
   the resident warps of the whole card bound the loads in flight (Little's law): a few blocks cannot
   saturate DRAM.  500 cycles are between an idle and a loaded memory; kernels whose threads begin several
   loads before they use the first are faster than that.  For the other units, with less than a quarter
   of the SM's warps resident time grows in proportion.
8. A launch costs 3 us on the device.  Blocks are dealt out in waves; a partly filled last wave takes as
   long as a full one.
9. Clocks are those of the data sheet's fp32 rate; no throttling.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from titan_kernels.device import DeviceFacts
from titan_kernels.emulator import Counters, LaunchReport
from titan_kernels.images import KernelInfo
from titan_kernels.occupancy import occupancy

__all__ = ["Prediction", "Workload", "clock_ghz", "predict", "workload"]

_DRAM_EFFICIENCY = {(7, 0): 0.82, (7, 5): 0.85}
_L2_BYTES_PER_CYCLE = 20
_ISSUE_PER_CYCLE = 4
# By the pipes of titan_kernels.images; the others cost an issue slot only.
_LANES_PER_CYCLE = {
    "fma": 64,
    "alu": 64,
    "fp16": 64,
    "mufu": 16,
    "conversion": 16,
    "shuffle": 32,
    "global": 32,
    "local": 32,
    "shared": 32,
}
_MEMORY_PIPES = ("global", "shared")
_SECTOR = 32
_LAUNCH_US = 3.0
_WARP = 32
_ENOUGH_WARPS = 0.25
_LATENCY_CYCLES = 500
_MEMORY_UNITS = ("dram", "l2", "latency")  # which the term "latency" holds back, not the factor


@dataclass(frozen=True)
class Workload:
    """What one launch does.

    Args:
        blocks: Blocks of the grid.
        warps: Warps of a block.
        resident_blocks: Blocks that one SM holds at a time, where the grid has enough.
        occupancy: Their warps as a fraction of what the SM can hold.
        load_requests: Loads from global memory by a warp.
        dram_bytes: Bytes of the distinct sectors that the launch touches.
        l2_bytes: Bytes of all sectors requested.
        shared_wavefronts: Cycles of shared memory.
        tensor_flops: Operations on tensor cores.
        instructions: Warp instructions executed, by pipe; see :class:`titan_kernels.images.KernelInfo`.
    """

    blocks: int
    warps: int
    resident_blocks: int
    occupancy: float
    load_requests: float
    dram_bytes: float
    l2_bytes: float
    shared_wavefronts: float
    tensor_flops: float
    instructions: Mapping[str, float]


@dataclass(frozen=True)
class Prediction:
    """The time of a launch on a card.

    Args:
        microseconds: Including the launch.
        bound: The unit that takes longest, or ``latency``, the wait for loads.
        terms: Microseconds of each unit, were it the only one.
    """

    microseconds: float
    bound: str
    terms: Mapping[str, float]

    @property
    def fraction_of_bound(self) -> float:
        """How close to the binding unit's own time the launch is; the rest is launch, waves, latency."""
        return self.terms[self.bound] / self.microseconds


def workload(report: LaunchReport, info: KernelInfo, capability: tuple[int, int]) -> Workload:
    """What a launch does, from the emulator's report and the compiled kernel's facts.

    Args:
        report: Made with ``emulated(count=True)``; where only some blocks ran, the others are taken to
            do the same on average.
        info: The kernel for that architecture.
        capability: ``(7, 0)`` or ``(7, 5)``.
    """
    blocks = math.prod(report.grid)
    scale = blocks / max(report.blocks_run, 1)
    counters = report.counters
    resident = occupancy(
        info, math.prod(report.block), max(0, report.shared_bytes - info.static_shared), capability
    )
    unique = report.unique_load_sectors + report.unique_store_sectors
    return Workload(
        blocks=blocks,
        warps=-(-math.prod(report.block) // _WARP),
        resident_blocks=max(1, resident.blocks),
        occupancy=resident.fraction,
        load_requests=counters.global_load_requests * scale,
        dram_bytes=unique * _SECTOR * scale,
        l2_bytes=(counters.global_load_sectors + counters.global_store_sectors) * _SECTOR * scale,
        shared_wavefronts=(counters.shared_load_wavefronts + counters.shared_store_wavefronts) * scale,
        tensor_flops=counters.mma_flops * scale,
        instructions={pipe: n * scale for pipe, n in _executed(info, counters).items()},
    )


def _executed(info: KernelInfo, counters: Counters) -> dict[str, float]:
    """Warp instructions by pipe, scaled to the memory requests; see assumption 5."""
    pipes = _pipes_of_loops(info) or info.pipes
    static = sum(pipes.get(pipe, 0) for pipe in _MEMORY_PIPES)
    requests = (
        counters.global_load_requests
        + counters.global_store_requests
        + counters.global_atomic_requests
        + counters.shared_load_requests
        + counters.shared_store_requests
        + counters.shared_atomic_requests
    )
    times = requests / static if static else 0.0
    return {pipe: count * times for pipe, count in pipes.items()}


def _pipes_of_loops(info: KernelInfo) -> Mapping[str, int]:
    """Instructions of the outermost loops that access memory, inner loops included."""
    found: Counter[str] = Counter()
    end = -1
    for loop in sorted(info.loops, key=lambda each: (each.begin, -each.end)):
        if loop.begin > end and any(loop.pipes.get(pipe) for pipe in _MEMORY_PIPES):
            found.update(loop.pipes)
            end = loop.end
    return found


def clock_ghz(card: DeviceFacts) -> float:
    """The clock behind the data sheet's fp32 rate: two operations on each of 64 lanes per SM."""
    return card.fp32_tflops * 1e3 / (card.sms * 2 * _LANES_PER_CYCLE["fma"])


def predict(work: Workload, card: DeviceFacts) -> Prediction:
    """Predict the time of a launch on a Volta or Turing card.

    Raises:
        ValueError: The card is neither.
    """
    if card.capability not in _DRAM_EFFICIENCY:
        raise ValueError(f"card ({card.name_pattern}): the model knows Volta (7.0) and Turing (7.5) only")
    terms = _terms(work, card)
    stall = _stall(work, card)
    times = {unit: time * (1.0 if unit in _MEMORY_UNITS else stall) for unit, time in terms.items()}
    bound = max(times, key=lambda unit: times[unit])
    return Prediction(times[bound] * _waves(work, card) + _LAUNCH_US, bound, terms)


def _terms(work: Workload, card: DeviceFacts) -> dict[str, float]:
    cycles_per_us = clock_ghz(card) * 1e3
    busy = min(card.sms, work.blocks) * cycles_per_us  # SM cycles per microsecond
    waiting = min(card.sms * work.resident_blocks, work.blocks) * work.warps  # warps, one load each
    terms = {
        "dram": work.dram_bytes / (card.bandwidth_gbs * 1e3 * _DRAM_EFFICIENCY[card.capability]),
        "l2": work.l2_bytes / (_L2_BYTES_PER_CYCLE * busy),
        "latency": work.load_requests * _LATENCY_CYCLES / (waiting * cycles_per_us),
        "shared": work.shared_wavefronts / busy,
        "issue": sum(work.instructions.values()) / (_ISSUE_PER_CYCLE * busy),
    }
    if work.tensor_flops:
        peak = (card.peak_tflops(torch.float16) or 0.0) * min(card.sms, work.blocks) / card.sms
        terms["tensor"] = work.tensor_flops / (peak * 1e6) if peak else math.inf
    for pipe, lanes in _LANES_PER_CYCLE.items():
        if count := work.instructions.get(pipe):
            terms[pipe] = count * _WARP / (lanes * busy)
    return terms


def _stall(work: Workload, card: DeviceFacts) -> float:
    """How much longer arithmetic takes because an SM has too few warps to hide its latency."""
    on_one = min(work.resident_blocks, -(-work.blocks // card.sms))
    share = work.occupancy * on_one / work.resident_blocks
    return max(1.0, _ENOUGH_WARPS / max(share, 1e-3))


def _waves(work: Workload, card: DeviceFacts) -> float:
    """How much longer the launch takes because its last wave of blocks is not full."""
    per_wave = card.sms * work.resident_blocks
    if work.blocks <= per_wave:
        return 1.0
    waves = work.blocks / per_wave
    return math.ceil(waves) / waves
