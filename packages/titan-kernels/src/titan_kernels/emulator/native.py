"""The C interface of a compiled unit; ``titan_emulator/launch.h`` is the other side."""

from __future__ import annotations

import ctypes
import functools
import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from titan_kernels.launch import Argument, Packed

__all__ = ["NativeArgument", "NativeLaunch", "call", "convert", "load"]

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


def convert(argument: Argument) -> NativeArgument:
    """A Python argument as the unit takes it."""
    if argument is None or isinstance(argument, torch.Tensor):
        return _argument(_POINTER, [argument])
    if isinstance(argument, float):
        return _argument(_FLOAT, [argument])
    if isinstance(argument, int):
        return _argument(_INT, [argument])
    return _packed(argument)


def _packed(argument: Packed) -> NativeArgument:
    values = list(argument.values)
    missing = argument.capacity - len(values)
    if any(value is None or isinstance(value, torch.Tensor) for value in values):
        return _argument(_POINTERS, values + [None] * missing)
    if any(isinstance(value, float) for value in values):
        return _argument(_FLOATS, values + [0.0] * missing)
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
        return value.data_ptr()
    if isinstance(value, float):
        return int(struct.unpack("<I", struct.pack("<f", value))[0])
    return int(value) & 0xFFFF_FFFF_FFFF_FFFF


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
    unit.titan_emulator_kernels.restype = ctypes.c_void_p
    unit.titan_emulator_free.argtypes = [ctypes.c_void_p]
    return unit


def call(unit: ctypes.CDLL, function: str, *args: object) -> dict[str, Any]:
    """Calls a function that answers in JSON."""
    answer = getattr(unit, function)(*args)
    try:
        result: dict[str, Any] = json.loads(ctypes.string_at(answer))
    finally:
        unit.titan_emulator_free(answer)
    return result
