"""Launches a compiled kernel on the device of its tensors: a GPU, or the emulator for CPU tensors.

A launch is asynchronous, on PyTorch's current stream, and allocates and synchronises nothing, so it
can be captured in a CUDA graph.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from titan_kernels.errors import LaunchError

if TYPE_CHECKING:
    from typing import TypeAlias

    Argument: TypeAlias = "torch.Tensor | Packed | bool | int | float | None"
    Dim3: TypeAlias = int | tuple[int, int, int]

__all__ = ["Packed", "launch"]


@dataclass(frozen=True)
class Packed:
    """An ``Array<..., N>`` parameter of a kernel, passed by value.

    Attributes:
        values: Tensors or ``None`` for ``Array<Global<T>, N>``, numbers for ``Array<i64, N>`` and its kin.
        capacity: The ``N`` of the parameter; the places after the last value are zero.
    """

    values: Sequence[torch.Tensor | int | float | None]
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
    first = _first_tensor(kernel, args)
    if grid == 0 or (isinstance(grid, tuple) and 0 in grid):
        return
    if first.is_cuda:
        _cuda_launch()(unit, kernel, first.get_device(), grid, block, args, shared)
    elif first.device.type == "cpu":
        _emulate(unit, kernel, _dim3(grid), _dim3(block), args, shared)
    else:
        raise LaunchError(f"kernel {kernel}: its tensors are on {first.device}, not on a CUDA device")


@functools.cache
def _cuda_launch() -> Callable[[str, str, int, Dim3, Dim3, Sequence[Argument], int], None]:
    from titan_kernels import _cuda  # needs the compiled extension; the emulator does without

    return _cuda.launch


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


def _first_tensor(kernel: str, args: Iterable[Argument]) -> torch.Tensor:
    for arg in args:
        if isinstance(arg, torch.Tensor):
            return arg
        if isinstance(arg, Packed):
            for value in arg.values:
                if isinstance(value, torch.Tensor):
                    return value
    raise LaunchError(f"kernel {kernel}: no argument is a tensor, so there is no device to launch on")
