"""Launches a compiled kernel on the device of its tensors: a GPU, or the emulator for CPU tensors.

A launch is asynchronous, on PyTorch's current stream, and allocates and synchronises nothing, so it
can be captured in a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from titan_kernels.errors import LaunchError

if TYPE_CHECKING:
    from typing import TypeAlias

    Scalar: TypeAlias = bool | int | float
    Argument: TypeAlias = "torch.Tensor | Packed | Scalar | None"
    Dim3: TypeAlias = int | tuple[int, int, int]

__all__ = ["Packed", "launch"]


@dataclass(frozen=True)
class Packed:
    """An ``Array<..., N>`` parameter of a kernel, passed by value.

    Attributes:
        values: Tensors or ``None`` for ``Array<Global<T>, N>``, ints for ``Array<i64, N>``.
        capacity: The ``N`` of the parameter; the places after the last value are zero.
    """

    values: Sequence[torch.Tensor | int | None]
    capacity: int

    def __post_init__(self) -> None:
        if len(self.values) > self.capacity:
            raise ValueError(f"Packed: {len(self.values)} values do not fit in capacity ({self.capacity})")


def launch(
    unit: str, kernel: str, grid: Dim3, block: Dim3, args: Sequence[Argument], shared: int = 0
) -> None:
    """Launch a kernel on the device of its first tensor.

    Args:
        unit: The op whose ``kernel.cu`` holds the kernel, such as ``"rms_norm"``.
        kernel: The kernel's name, such as ``"rms_norm_forward_f16"``.
        grid: Blocks, as x or (x, y, z).  Where one of them is 0 there is nothing to do.
        block: Threads of a block, as x or (x, y, z).
        args: One per parameter: a tensor for ``Global<T>`` (``None`` for a null pointer), an int or
            bool for ``int`` and ``i64``, a float for ``float``, :class:`Packed` for ``Array``.
        shared: Dynamic shared memory in bytes.

    Raises:
        LaunchError: the kernel could not be loaded or launched, a CPU tensor came without an
            emulator session, or the tensors are not all on one device.
    """
    blocks, threads = _dim3(grid), _dim3(block)
    device = _device(kernel, args)
    if 0 in blocks:
        return
    if device.type == "cpu":
        _emulate(unit, kernel, blocks, threads, args, shared)
    else:
        raise LaunchError(f"kernel {kernel}: {device} tensors cannot be launched in this build")


def _emulate(
    unit: str,
    kernel: str,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    args: Sequence[Argument],
    shared: int,
) -> None:
    from titan_kernels import emulator  # needs a compiler; GPUs do without

    session = emulator.active()
    if session is None:
        raise LaunchError(
            f"kernel {kernel}: its tensors are on the CPU, where CUDA kernels run only inside "
            "`with titan_kernels.emulated():`; move the tensors to a GPU or use the reference"
        )
    session.run(unit, kernel, grid, block, args, shared)


def _dim3(size: Dim3) -> tuple[int, int, int]:
    return (size, 1, 1) if isinstance(size, int) else size


def _device(kernel: str, args: Iterable[Argument]) -> torch.device:
    for arg in args:
        for value in arg.values if isinstance(arg, Packed) else (arg,):
            if isinstance(value, torch.Tensor):
                return value.device
    raise LaunchError(f"kernel {kernel}: no argument is a tensor, so there is no device to launch on")
