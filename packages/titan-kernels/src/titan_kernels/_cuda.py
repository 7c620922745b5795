"""Launches on a GPU: defines and loads kernels when they are first used, and words the errors."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

import torch

from titan_kernels import _driver, images
from titan_kernels.errors import LaunchError
from titan_kernels.launch import Packed

if TYPE_CHECKING:
    from titan_kernels.launch import Argument, Dim3

__all__ = ["launch"]

_driver.register_packed(Packed)
_handles: dict[tuple[str, str], int] = {}
_loading = threading.Lock()


def launch(
    unit: str, kernel: str, device: int, grid: Dim3, block: Dim3, args: Sequence[Argument], shared: int
) -> None:
    """Launch on CUDA device ``device``; see :func:`titan_kernels.launch.launch`."""
    try:
        handle = _handles.get((unit, kernel))
        if handle is None:
            handle = _define(unit, kernel)
        stream = torch._C._cuda_getCurrentRawStream(device)
        if not _driver.launch(handle, device, stream, grid, block, shared, args):
            _load(unit, kernel, handle, device)
            _driver.launch(handle, device, stream, grid, block, shared, args)
    # RuntimeError: the driver's, this package's, and PyTorch's for tensors without memory.
    except (RuntimeError, ValueError, TypeError, OverflowError) as error:
        _fail(unit, kernel, device, grid, block, args, shared, error)


def _define(unit: str, kernel: str) -> int:
    with _loading:
        for arch in images.architectures(unit):
            signature = images.signatures(unit, arch).get(kernel)
            if signature is not None:
                handle = _driver.define(unit, kernel, signature.parameters, signature.max_threads)
                return _handles.setdefault((unit, kernel), handle)
    raise LaunchError(f"unit {unit} has no kernel of that name")


def _load(unit: str, kernel: str, handle: int, device: int) -> None:
    arch = images.choose(unit, _driver.capability(device))
    signature = images.signatures(unit, arch).get(kernel)
    if signature is None:
        raise LaunchError(f"the kernel does not exist for {arch}, which this GPU needs")
    _driver.load(handle, device, signature.static_shared, lambda: images.read(unit, arch))


def _fail(
    unit: str,
    kernel: str,
    device: int,
    grid: Dim3,
    block: Dim3,
    args: Sequence[Argument],
    shared: int,
    error: Exception,
) -> NoReturn:
    raise LaunchError(
        f"kernel {kernel} of unit {unit} on cuda:{device}: {error}\n"
        f"  grid {grid}, block {block}, dynamic shared memory {shared} bytes{_limit(device, shared)}\n"
        f"  arguments: {', '.join(describe(arg) for arg in args)}"
    ) from error


def _limit(device: int, shared: int) -> str:
    """The device's limit, where it may be the reason."""
    try:
        limit = _driver.shared_limit(device)
    except _driver.DriverError:
        return ""
    return f" (a block of this GPU can have {limit})" if shared > limit else ""


def describe(arg: Argument) -> str:
    """An argument in words: dtype and shape of a tensor, the value of anything else."""
    if isinstance(arg, torch.Tensor):
        return f"{str(arg.dtype).removeprefix('torch.')} {tuple(arg.shape)}"
    if isinstance(arg, Packed):
        return f"Packed[{', '.join(describe(value) for value in arg.values)}]"
    return str(arg)
