"""Passes over lists of tensors in few launches: norm with overflow check, and casts with a scale.

Both read each byte once, wait for nothing on the GPU, and can be captured in a CUDA graph.  There is no
Triton implementation: a Triton kernel takes a fixed number of pointers.
"""

from __future__ import annotations

import numbers
from collections.abc import Sequence
from typing import Any, Literal, overload

import torch
from torch import Tensor

from titan_kernels import checks
from titan_kernels.ops.multi_tensor import cases, cuda, reference
from titan_kernels.platforms import always
from titan_kernels.registry import Implementation, Op

__all__ = ["multi_tensor_cast", "multi_tensor_norm"]


@overload
def multi_tensor_norm(
    tensors: Sequence[Tensor], *, per_tensor: Literal[False] = ...
) -> tuple[Tensor, Tensor]: ...
@overload
def multi_tensor_norm(
    tensors: Sequence[Tensor], *, per_tensor: Literal[True]
) -> tuple[Tensor, Tensor, Tensor]: ...
def multi_tensor_norm(
    tensors: Sequence[Tensor], *, per_tensor: bool = False
) -> tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]:
    """Euclidean norm of all elements together, and whether one of them is infinite or NaN.

    For gradient clipping and the loss scaler's verdict in one pass.  Sums are fp32 (fp64 for fp64 tensors),
    in an order that depends on the tensors' sizes and dtypes only.  Where there is an infinity or a NaN, the
    norm is not finite; it is also infinite where the sum of squares exceeds fp32.  Autograd doesn't see it.

    Args:
        tensors: Floating point, any shapes, strides and mixture of dtypes, all on one device.
        per_tensor: Also return the norm of each tensor.

    Returns:
        The norm and the verdict (1 or 0), fp32, of shape (), on the tensors' device; then the
        tensors' norms, fp32, (N).  Without tensors, zeros on the CPU.

    Raises:
        ValueError: A tensor is not floating point, or they are on different devices.
    """
    listed = list(tensors)
    _check("tensors", listed)
    if not listed:
        zeros = torch.zeros(()), torch.zeros(())
        return (*zeros, torch.zeros(0)) if per_tensor else zeros
    norm, found, each = MULTI_TENSOR_NORM(listed, per_tensor)
    return (norm, found, each) if per_tensor else (norm, found)


def multi_tensor_cast(
    sources: Sequence[Tensor], targets: Sequence[Tensor], scale: Tensor | float | None = None
) -> None:
    """Copy each source into its target, converted to the target's dtype, optionally scaled first.

    ``target = source * scale`` is computed in fp32 and rounded once, so gradients can be unscaled on their
    way.  A source may be its own target; otherwise they must not overlap.  Autograd doesn't see it:
    use it under ``torch.no_grad()`` where something requires a gradient.

    Args:
        sources: Floating point, any mixture of dtypes.
        targets: As many, of the sources' shapes; they are written.
        scale: One number, or one element as an fp32 tensor on the tensors' device.

    Raises:
        ValueError: The lists don't fit together, the scale is no number, or a gradient would be lost.
    """
    read, written = list(sources), list(targets)
    _check("sources", read)
    _check("targets", written)
    if [x.shape for x in read] != [x.shape for x in written]:
        raise ValueError(
            f"targets ({_shapes(written)}): they must have the shapes of sources ({_shapes(read)})"
        )
    tensor = scale if isinstance(scale, Tensor) else None
    if tensor is not None and (tensor.numel() != 1 or tensor.dtype != torch.float32):
        raise ValueError(f"scale ({tensor.dtype}, shape {tuple(tensor.shape)}): it must be one fp32 number")
    factor = _factor(scale)
    every = [*read, *written, *([] if tensor is None else [tensor])]
    _check("sources and targets", every)
    if torch.is_grad_enabled() and any(x.requires_grad for x in every):
        raise ValueError(
            "sources, targets or scale require gradients, which a cast doesn't pass on: "
            "use torch.no_grad() or .detach()"
        )
    if read:
        MULTI_TENSOR_CAST(read, written, tensor, factor)


def _factor(scale: object) -> float:
    """The scale that is no tensor; NumPy's numbers are numbers too."""
    if scale is None or isinstance(scale, Tensor):
        return 1.0
    if not isinstance(scale, numbers.Real):
        raise ValueError(f"scale ({scale!r}): it must be a number, or one as an fp32 tensor")
    return float(scale)


def _shapes(tensors: list[Tensor]) -> str:
    return ", ".join(str(tuple(x.shape)) for x in tensors)


def _check(name: str, tensors: list[Tensor]) -> None:
    wrong = [i for i, x in enumerate(tensors) if not checks.is_float(x.dtype)]
    if wrong:
        rule = "they must be floating point, fp16, bf16, fp32 or float64"
        raise ValueError(f"{name} (number {wrong[0]}: {tensors[wrong[0]].dtype}): {rule}")
    devices = sorted({str(x.device) for x in tensors})
    if len(devices) > 1:
        raise ValueError(f"{name} (on {', '.join(devices)}): they must be on one device")


def _fake_norm(tensors: list[Tensor], per_tensor: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    def fresh(*shape: int) -> Tensor:
        return tensors[0].new_empty(shape, dtype=torch.float32)

    return fresh(), fresh(), fresh(len(tensors)) if per_tensor else None


def _bytes_of_cast(args: tuple[Any, ...], outputs: None) -> int:
    sources, targets, _, _ = args
    return sum(x.numel() * x.element_size() for x in (*sources, *targets))


MULTI_TENSOR_NORM = Op(
    schema="multi_tensor_norm(Tensor[] tensors, bool per_tensor) -> (Tensor, Tensor, Tensor?)",
    fake=_fake_norm,
    implementations=(
        Implementation("cuda", cuda.supports_norm, cuda.multi_tensor_norm),
        Implementation("reference", always, reference.multi_tensor_norm),
    ),
    cases=cases.norm_cases,
)

MULTI_TENSOR_CAST = Op(
    schema="multi_tensor_cast(Tensor[] sources, Tensor(a!)[] targets, Tensor? scale, float factor) -> ()",
    fake=lambda sources, targets, scale, factor: None,
    implementations=(
        Implementation("cuda", cuda.supports_cast, cuda.multi_tensor_cast),
        Implementation("reference", always, reference.multi_tensor_cast),
    ),
    cases=cases.cast_cases,
    minimum_bytes=_bytes_of_cast,
)


def _norm_below_autograd(tensors: list[Tensor], per_tensor: bool) -> Any:
    with torch._C._AutoDispatchBelowAutograd():
        return MULTI_TENSOR_NORM(tensors, per_tensor)


def _cast_below_autograd(
    sources: list[Tensor], targets: list[Tensor], scale: Tensor | None, factor: float
) -> None:
    """Tells autograd that the targets changed, for whoever saved one."""
    with torch._C._AutoDispatchBelowAutograd():
        MULTI_TENSOR_CAST(sources, targets, scale, factor)
    torch.autograd.graph.increment_version(targets)


MULTI_TENSOR_NORM.register_autograd_kernel(_norm_below_autograd, differentiable=False)
MULTI_TENSOR_CAST.register_autograd_kernel(_cast_below_autograd, differentiable=False)
