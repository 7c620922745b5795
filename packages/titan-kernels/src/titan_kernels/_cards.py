"""The table behind :mod:`titan_kernels.device`.

Sources, by the key in each entry:

* ``volta``: NVIDIA Tesla V100 GPU Architecture, WP-08608-001; V100 and V100S PCIe data sheets
* ``titan-v``: NVIDIA TITAN V product page (both rates are those of its sustained clock, 1350 MHz)
* ``gv100``: NVIDIA Quadro GV100 data sheet
* ``turing``: NVIDIA Turing GPU Architecture, WP-09183-001, appendices A to C, reference clocks
* ``tu116``: GeForce GTX 1660 Ti, 1660 Super and 1660 specifications
* ``quadro``: Quadro RTX 4000 and 5000 data sheets
* ``t4``: NVIDIA T4 data sheet
* ``a100``: NVIDIA A100 Tensor Core GPU Architecture; A100 data sheet
* ``ga102``: NVIDIA Ampere GA102 GPU Architecture, appendix A
* ``ad102``: NVIDIA Ada GPU Architecture, appendix A
* ``h100``, ``h200``: NVIDIA H100 Tensor Core GPU Architecture; H200 data sheet

All rates are dense.  Sizes per SM are in the CUDA C++ Programming Guide, "Technical Specifications
per Compute Capability".
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["CARDS", "DeviceFacts"]


@dataclass(frozen=True)
class DeviceFacts:
    """One card's sizes and peak rates; ``None`` where the hardware has no such unit."""

    name_pattern: str
    """Regular expression of the driver's name, without ``NVIDIA``, ``Tesla`` and ``GeForce``."""
    capability: tuple[int, int]
    """Compute capability."""
    sms: int
    """Streaming multiprocessors."""
    l2_mib: float
    """L2 cache, MiB."""
    memory_gib: float
    """Device memory as sold."""
    bandwidth_gbs: float
    """Memory bandwidth, GB/s."""
    fp32_tflops: float
    """fp32 outside tensor cores, TFLOP/s."""
    fp16_tflops: float | None
    """fp16 tensor cores accumulating in fp32, TFLOP/s."""
    bf16_tflops: float | None
    """bf16 tensor cores accumulating in fp32, TFLOP/s."""
    int8_tops: float | None
    """int8 tensor cores, TOP/s."""
    source: str
    """Key of the source, see :mod:`titan_kernels._cards`."""

    @property
    def shared_memory_per_sm_kib(self) -> int:
        """Shared memory that the blocks of one SM can use together, KiB."""
        return {(7, 0): 96, (7, 5): 64, (8, 0): 164, (8, 6): 100, (8, 9): 100, (9, 0): 228}[self.capability]

    @property
    def threads_per_sm(self) -> int:
        """Threads that one SM can hold."""
        return {(7, 5): 1024, (8, 6): 1536, (8, 9): 1536}.get(self.capability, 2048)

    @property
    def registers_per_sm(self) -> int:
        """32-bit registers of one SM."""
        return 65536

    def peak_tflops(self, dtype: torch.dtype) -> float | None:
        """Peak rate of matrix products with inputs of ``dtype``, TFLOP/s (TOP/s for int8).

        fp16 and bf16 count tensor cores accumulating in fp32, as cuBLAS does by default; fp32 counts
        the ordinary units, as PyTorch does unless TF32 is allowed.  ``None`` where the card has no
        unit for it, as for bf16 on Volta and Turing.
        """
        return {
            torch.float32: self.fp32_tflops,
            torch.float16: self.fp16_tflops,
            torch.bfloat16: self.bf16_tflops,
            torch.int8: self.int8_tops,
        }.get(dtype)


_V, _T, _A, _G, _D, _H = (7, 0), (7, 5), (8, 0), (8, 6), (8, 9), (9, 0)

# name, capability, SMs, L2, memory, bandwidth, fp32, fp16, bf16, int8, source
CARDS: tuple[DeviceFacts, ...] = (
    DeviceFacts("TITAN V", _V, 80, 4.5, 12, 653, 13.8, 110.0, None, None, "titan-v"),
    DeviceFacts("V100-SXM2-16GB", _V, 80, 6, 16, 900, 15.7, 125.0, None, None, "volta"),
    DeviceFacts("V100-SXM2-32GB", _V, 80, 6, 32, 900, 15.7, 125.0, None, None, "volta"),
    DeviceFacts("V100-PCIE-16GB", _V, 80, 6, 16, 900, 14.0, 112.0, None, None, "volta"),
    DeviceFacts("V100-PCIE-32GB", _V, 80, 6, 32, 900, 14.0, 112.0, None, None, "volta"),
    DeviceFacts("V100S-PCIE-32GB", _V, 80, 6, 32, 1134, 16.4, 130.0, None, None, "volta"),
    DeviceFacts("Quadro GV100", _V, 80, 6, 32, 870, 14.8, 118.5, None, None, "gv100"),
    DeviceFacts("TITAN RTX", _T, 72, 6, 24, 672, 16.3, 130.5, None, 261.0, "turing"),
    DeviceFacts("Quadro RTX 8000", _T, 72, 6, 48, 672, 16.3, 130.5, None, 261.0, "turing"),
    DeviceFacts("Quadro RTX 6000", _T, 72, 6, 24, 672, 16.3, 130.5, None, 261.0, "turing"),
    DeviceFacts("Quadro RTX 5000", _T, 48, 4, 16, 448, 11.2, 89.2, None, 178.4, "quadro"),
    DeviceFacts("Quadro RTX 4000", _T, 36, 4, 8, 416, 7.1, 57.0, None, 113.9, "quadro"),
    DeviceFacts("T4", _T, 40, 4, 16, 320, 8.1, 65.0, None, 130.0, "t4"),
    DeviceFacts("RTX 2080 Ti", _T, 68, 5.5, 11, 616, 13.4, 53.8, None, 215.2, "turing"),
    DeviceFacts("RTX 2080 SUPER", _T, 48, 4, 8, 496, 11.2, 44.6, None, 178.4, "turing"),
    DeviceFacts("RTX 2080", _T, 46, 4, 8, 448, 10.1, 40.3, None, 161.1, "turing"),
    DeviceFacts("RTX 2070 SUPER", _T, 40, 4, 8, 448, 9.1, 36.3, None, 145.0, "turing"),
    DeviceFacts("RTX 2070", _T, 36, 4, 8, 448, 7.5, 29.9, None, 119.4, "turing"),
    DeviceFacts("RTX 2060 SUPER", _T, 34, 4, 8, 448, 7.2, 28.7, None, 114.9, "turing"),
    DeviceFacts("RTX 2060", _T, 30, 3, 6, 336, 6.5, 25.8, None, 103.2, "turing"),
    DeviceFacts("GTX 1660 Ti", _T, 24, 1.5, 6, 288, 5.4, None, None, None, "tu116"),
    DeviceFacts("GTX 1660 SUPER", _T, 22, 1.5, 6, 336, 5.0, None, None, None, "tu116"),
    DeviceFacts("GTX 1660", _T, 22, 1.5, 6, 192, 5.0, None, None, None, "tu116"),
    DeviceFacts("A100-(SXM4|PCIE)-40GB", _A, 108, 40, 40, 1555, 19.5, 312.0, 312.0, 624.0, "a100"),
    DeviceFacts("A100-SXM4-80GB", _A, 108, 40, 80, 2039, 19.5, 312.0, 312.0, 624.0, "a100"),
    DeviceFacts("A100 80GB PCIe", _A, 108, 40, 80, 1935, 19.5, 312.0, 312.0, 624.0, "a100"),
    DeviceFacts("RTX 3090", _G, 82, 6, 24, 936, 35.6, 71.0, 71.0, 284.0, "ga102"),
    DeviceFacts("RTX 4090", _D, 128, 72, 24, 1008, 82.6, 165.2, 165.2, 660.6, "ad102"),
    DeviceFacts("H100 80GB HBM3", _H, 132, 50, 80, 3350, 67.0, 989.0, 989.0, 1979.0, "h100"),
    DeviceFacts("H100 PCIe", _H, 114, 50, 80, 2000, 51.0, 756.0, 756.0, 1513.0, "h100"),
    DeviceFacts("H200", _H, 132, 50, 141, 4800, 67.0, 989.0, 989.0, 1979.0, "h200"),
)
