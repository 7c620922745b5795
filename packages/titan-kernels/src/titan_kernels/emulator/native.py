"""The C interface of a compiled unit; ``titan_emulator/launch.h`` is the other side."""

from __future__ import annotations

import ctypes
import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from titan_kernels.errors import LaunchError
from titan_kernels.launch import Packed

if TYPE_CHECKING:
    from titan_kernels.launch import Argument

__all__ = ["NativeArgument", "NativeLaunch", "call", "check_geometry", "convert", "launch", "load"]

_INT, _FLOAT, _POINTER, _INTS, _FLOATS, _POINTERS = range(6)


class NativeArgument(ctypes.Structure):
    """``TitanArgument``: one kernel argument."""

    _fields_ = (
        ("kind", ctypes.c_int32),
        ("count", ctypes.c_int32),
        ("values", ctypes.POINTER(ctypes.c_uint64)),
        ("bytes", ctypes.POINTER(ctypes.c_uint64)),
        ("item", ctypes.POINTER(ctypes.c_int32)),
    )


class NativeLaunch(ctypes.Structure):
    """``TitanLaunch``: one launch."""

    _fields_ = (
        ("kernel", ctypes.c_char_p),
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("dynamic_shared", ctypes.c_uint64),
        ("shared_limit", ctypes.c_uint64),
        ("arguments", ctypes.POINTER(NativeArgument)),
        ("argument_count", ctypes.c_uint64),
        ("blocks", ctypes.POINTER(ctypes.c_uint64)),
        ("block_count", ctypes.c_uint64),
        ("seed", ctypes.c_uint64),
        ("check", ctypes.c_int32),
        ("count", ctypes.c_int32),
        ("time_limit", ctypes.c_double),
    )


def check_geometry(kernel: str, grid: object, block: object, shared: object) -> None:
    """Refuses what does not fit the fields of :class:`NativeLaunch`; the unit checks the rest.

    Raises:
        LaunchError: a size is no three numbers of up to 32 bits, or ``shared`` is no number of bytes.
    """
    for size in (grid, block):
        if not (isinstance(size, tuple) and len(size) == 3 and all(_fits(each, 32) for each in size)):
            raise LaunchError(f"kernel {kernel}: no grid or block has the size {size!r}; it is (x, y, z)")
    if not _fits(shared, 64):
        raise LaunchError(f"kernel {kernel}: dynamic shared memory ({shared!r}) is a number of bytes")


def _fits(value: object, bits: int) -> bool:
    return isinstance(value, int) and 0 <= value < 1 << bits


def convert(kernel: str, args: Sequence[Argument]) -> list[NativeArgument]:
    """Python's arguments as the unit takes them.

    Raises:
        LaunchError: one is of a wrong type, does not fit in 64 bits, or is a tensor without memory.
    """
    converted: list[NativeArgument] = []
    try:
        converted.extend(map(_convert, args))
    except (RuntimeError, TypeError, ValueError) as error:
        raise LaunchError(f"kernel {kernel}: argument {len(converted)}: {error}") from error
    return converted


def _convert(argument: Argument) -> NativeArgument:
    if argument is None or isinstance(argument, torch.Tensor):
        return _argument(_POINTER, [argument])
    if isinstance(argument, float):
        return _argument(_FLOAT, [argument])
    if isinstance(argument, int):
        return _argument(_INT, [argument])
    if isinstance(argument, Packed):
        return _packed(argument)
    raise TypeError(f"{type(argument).__name__} is no tensor, number, Packed or None")


def _packed(argument: Packed) -> NativeArgument:
    values = list(argument.values)
    missing = argument.capacity - len(values)
    if any(value is None or isinstance(value, torch.Tensor) for value in values):
        return _argument(_POINTERS, values + [None] * missing)
    if any(isinstance(value, float) for value in values):
        return _argument(_FLOATS, [*map(float, values), *[0.0] * missing])  # type: ignore[arg-type]
    return _argument(_INTS, values + [0] * missing)


def _argument(kind: int, values: Sequence[Any]) -> NativeArgument:
    n = len(values)
    tensors = [value if isinstance(value, torch.Tensor) else None for value in values]
    return NativeArgument(
        kind,
        n,
        (ctypes.c_uint64 * n)(*map(_bits, values)),
        (ctypes.c_uint64 * n)(*map(_extent, tensors)),
        (ctypes.c_int32 * n)(*(0 if t is None else t.element_size() for t in tensors)),
    )


def _bits(value: torch.Tensor | int | float | None) -> int:
    if value is None:
        return 0
    if isinstance(value, torch.Tensor):
        return _address(value)
    if isinstance(value, float):
        return ctypes.c_uint32.from_buffer(ctypes.c_float(value)).value
    if not isinstance(value, int):
        raise TypeError(f"{type(value).__name__} is no tensor, number or None")
    if not -(1 << 63) <= value < 1 << 63:
        raise ValueError("the number does not fit in 64 bits")
    return value & 0xFFFF_FFFF_FFFF_FFFF


def _address(tensor: torch.Tensor) -> int:
    if tensor.device.type != "cpu":
        raise ValueError(f"the tensor is on {tensor.device}, the first one on the CPU")
    address = tensor.data_ptr()
    if address == 0 and tensor.numel() > 0:
        raise ValueError("the tensor has no memory of its own: pass the one that it wraps")
    return address


def _extent(tensor: torch.Tensor | None) -> int:
    """Bytes from the tensor's first element to its last."""
    if tensor is None or tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()


@functools.cache
def load(library: Path) -> ctypes.CDLL:
    """The library of a compiled unit, with its functions typed."""
    unit = ctypes.CDLL(str(library))
    unit.titan_emulator_launch.argtypes = [ctypes.POINTER(NativeLaunch)]
    unit.titan_emulator_launch.restype = ctypes.c_void_p
    unit.titan_emulator_resume.argtypes = [ctypes.c_int32]
    unit.titan_emulator_resume.restype = ctypes.c_void_p
    unit.titan_emulator_kernels.restype = ctypes.c_void_p
    unit.titan_emulator_free.argtypes = [ctypes.c_void_p]
    return unit


def call(unit: ctypes.CDLL, function: str, *args: object) -> dict[str, Any]:
    """Calls a function that answers in JSON."""
    return _take(unit, getattr(unit, function)(*args))


def _take(unit: ctypes.CDLL, answer: int) -> dict[str, Any]:
    try:
        result: dict[str, Any] = json.loads(ctypes.string_at(answer))
    finally:
        unit.titan_emulator_free(answer)
    return result


def launch(unit: ctypes.CDLL, request: NativeLaunch) -> dict[str, Any]:
    """Runs a launch; one at a time.

    It pauses now and then, so that Python runs the handlers of signals.  What they raise ends it.
    """
    answer = None
    try:
        answer = unit.titan_emulator_launch(ctypes.byref(request))
        while not answer:
            answer = unit.titan_emulator_resume(0)
    finally:
        while not answer:
            answer = unit.titan_emulator_resume(1)
        report = _take(unit, answer)
    return report
