"""Where each kind of implementation can run; the common part of every ``supports``."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from collections.abc import Callable, Iterable
from typing import Any

import torch

from titan_kernels import emulator, images
from titan_kernels.registry import YES, Implementation, Verdict, no

__all__ = [
    "always",
    "cuda_ready",
    "multiprocessors",
    "suffix",
    "triton_implementation",
    "triton_ready",
    "triton_row",
]

FLOATS = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32"}
_TRITON_MINIMUM = (7, 0)
_LONGEST_TRITON_ROW = 65536


def suffix(dtype: torch.dtype) -> str:
    """The part of a kernel's name that stands for ``dtype``."""
    return FLOATS[dtype]


def always(*_args: object, **_kwargs: object) -> Verdict:
    """The verdict of a reference: it serves every call."""
    return YES


def _place(tensors: Iterable[torch.Tensor | None]) -> torch.device | Verdict:
    devices = {each.device for each in tensors if each is not None}
    if len(devices) > 1:
        return no(f"the tensors are on different devices ({', '.join(sorted(map(str, devices)))})")
    return devices.pop() if devices else no("there are no tensors")


def _floats(tensors: Iterable[torch.Tensor | None]) -> Verdict:
    for each in tensors:
        if each is not None and each.is_floating_point() and each.dtype not in FLOATS:
            return no(f"dtype {str(each.dtype).removeprefix('torch.')} is not one of fp16, bf16 and fp32")
    return YES


def cuda_ready(*tensors: torch.Tensor | None) -> Verdict:
    """Whether the package's CUDA kernels can run on these tensors."""
    place = _place(tensors)
    if isinstance(place, Verdict):
        return place
    if place.type == "cpu" and emulator.active() is None:
        return no("the tensors are on the CPU, where CUDA kernels run only under titan_kernels.emulated()")
    if place.type == "cuda" and (reason := _driver_problem(place.index)) is not None:
        return no(reason)
    if place.type not in ("cpu", "cuda"):
        return no(f"the tensors are on {place.type!r}, not on a CUDA device")
    return _floats(tensors)


@functools.cache
def _driver_problem(index: int) -> str | None:
    return images.problem(torch.cuda.get_device_capability(index))


def triton_ready(*tensors: torch.Tensor | None) -> Verdict:
    """Whether Triton kernels can run on these tensors: on a GPU, or interpreted on the CPU."""
    place = _place(tensors)
    if isinstance(place, Verdict):
        return place
    # First what installing it would not change.
    if place.type == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        return no("the tensors are on the CPU, where Triton runs only interpreted (TRITON_INTERPRET=1)")
    if place.type not in ("cpu", "cuda"):
        return no(f"the tensors are on {place.type!r}, not on a CUDA device")
    if importlib.util.find_spec("triton") is None:
        return no("triton is not installed (pip install triton)")
    if place.type == "cuda" and torch.cuda.get_device_capability(place) < _TRITON_MINIMUM:
        return no("Triton needs compute capability 7.0")
    return _floats(tensors)


def triton_row(x: torch.Tensor, *_others: object) -> Verdict:
    """Whether a Triton program can hold a row of ``x`` in registers."""
    if x.shape[-1] > _LONGEST_TRITON_ROW:
        return no(f"rows of {x.shape[-1]} elements are longer than {_LONGEST_TRITON_ROW}")
    return YES


def triton_implementation(
    module: str, function: str, supports: Callable[..., Verdict] | None = None
) -> Implementation:
    """A Triton implementation whose module is imported when it first runs: triton is optional.

    Args:
        module: The module's full name.
        function: The function in it; takes the operator's arguments.
        supports: Says what the kernel needs beyond :func:`triton_ready`.
    """

    def tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
        return [each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor)]

    def verdict(*args: Any, **kwargs: Any) -> Verdict:
        ready = triton_ready(*tensors(args, kwargs))
        return ready if supports is None or not ready.ok else supports(*args, **kwargs)

    def run(*args: Any, **kwargs: Any) -> Any:
        kernels = getattr(importlib.import_module(module), function)
        device = tensors(args, kwargs)[0].device
        if device.type != "cuda":
            return kernels(*args, **kwargs)
        with torch.cuda.device(device):  # Triton launches on the current device, wherever the tensors are
            return kernels(*args, **kwargs)

    return Implementation("triton", verdict, run)


def multiprocessors(device: torch.device) -> int:
    """Streaming multiprocessors of the device, for kernels whose blocks loop over their work.

    Those of the emulated one for the CPU.
    """
    if device.type == "cpu":
        session = emulator.active()
        if session is None:
            return emulator.MULTIPROCESSORS
        session.multiprocessors_used = True
        return session.multiprocessors
    return _multiprocessors(device.index)


@functools.cache
def _multiprocessors(index: int) -> int:
    return torch.cuda.get_device_properties(index).multi_processor_count
