"""Triton kernels of this room: one program per piece of a row."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from titan_kernels.ops.glu.matrices import gradients, halves, matrix, one_row_if_contiguous

__all__ = ["glu", "glu_backward", "relu2", "relu2_backward"]

_BLOCK = 1024


@triton.jit
def _activation(x, KIND: tl.constexpr):  # type: ignore[no-untyped-def]
    """Value and slope, by the formulas of the CUDA kernels, but 1 + erf: Triton has no erfc."""
    if KIND == "relu2":
        positive = tl.where(x <= 0.0, 0.0, x)
        value, slope = positive * positive, 2.0 * positive
    elif KIND == "gelu":
        below = 0.5 * (1.0 + tl.math.erf(0.70710678118654752 * x))
        value, slope = x * below, below + x * 0.39894228040143268 * tl.exp(-0.5 * x * x)
    elif KIND == "gelu_tanh":
        s = tl.sigmoid(1.5957691216057308 * x * (1.0 + 0.044715 * x * x))
        value, slope = x * s, s + x * s * (1.0 - s) * 1.5957691216057308 * (1.0 + 0.134145 * x * x)
    else:
        s = tl.sigmoid(x)
        value, slope = x * s, s * (1.0 + x * (1.0 - s))
    return value, slope


@triton.jit
def _place(n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Row and columns of this program."""
    pieces = tl.cdiv(n, BLOCK)
    program = tl.program_id(0).to(tl.int64)
    row = program // pieces
    return row, (program - row * pieces) * BLOCK + tl.arange(0, BLOCK)


@triton.jit
def _forward_kernel(  # type: ignore[no-untyped-def]
    gate, up, y, n, gate_stride, up_stride, KIND: tl.constexpr, GATED: tl.constexpr, BLOCK: tl.constexpr
):
    row, at = _place(n, BLOCK)
    inside = at < n
    g = tl.load(gate + row * gate_stride + at, mask=inside, other=0.0).to(tl.float32)
    value, _ = _activation(g, KIND)
    if GATED:
        value *= tl.load(up + row * up_stride + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(y + row * n + at, value.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _backward_kernel(  # type: ignore[no-untyped-def]
    dy, gate, up, dgate, dup, n, dy_stride, gate_stride, up_stride, out_stride,
    KIND: tl.constexpr, GATED: tl.constexpr, DGATE: tl.constexpr, DUP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, at = _place(n, BLOCK)
    inside = at < n
    d = tl.load(dy + row * dy_stride + at, mask=inside, other=0.0).to(tl.float32)
    g = tl.load(gate + row * gate_stride + at, mask=inside, other=0.0).to(tl.float32)
    value, slope = _activation(g, KIND)
    if DUP:
        tl.store(dup + row * out_stride + at, (d * value).to(dup.dtype.element_ty), mask=inside)
    if GATED:
        d *= tl.load(up + row * up_stride + at, mask=inside, other=0.0).to(tl.float32)
    if DGATE:
        tl.store(dgate + row * out_stride + at, (d * slope).to(dgate.dtype.element_ty), mask=inside)


def glu(gate: Tensor, up: Tensor | None, kind: str) -> Tensor:
    """Forward."""
    g, u = halves(gate, up)
    y = g.new_empty((*gate.shape[:-1], g.shape[1]))
    _forward(one_row_if_contiguous(g, u), y, kind, gated=True)
    return y


def glu_backward(
    dy: Tensor, gate: Tensor, up: Tensor | None, kind: str, output_mask: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """Gradients of gate and up, as far as wanted, or of the packed tensor as a whole."""
    whole, parts = gradients(gate, up, output_mask)
    _backward(one_row_if_contiguous(matrix(dy), *halves(gate, up)), parts, gate.shape[-1], kind, gated=True)
    return whole


def relu2(x: Tensor) -> Tensor:
    """Forward."""
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    row = x.contiguous().view(1, -1)
    _forward((row, row), y, "relu2", gated=False)
    return y


def relu2_backward(dy: Tensor, x: Tensor) -> Tensor:
    """Gradient of x."""
    dx = torch.empty_like(x, memory_format=torch.contiguous_format)
    d, row = (each.contiguous().view(1, -1) for each in (dy, x))
    _backward((d, row, row), (dx, None), x.numel(), "relu2", gated=False)
    return dx


def _forward(matrices: tuple[Tensor, ...], y: Tensor, kind: str, gated: bool) -> None:
    """Gate, up -> y."""
    gate, up = matrices
    if y.numel():
        strides = gate.stride(0), up.stride(0)
        _forward_kernel[_grid(gate)](gate, up, y, gate.shape[1], *strides, kind, gated, _BLOCK)


def _backward(
    matrices: tuple[Tensor, ...], out: tuple[Tensor | None, ...], out_stride: int, kind: str, gated: bool
) -> None:
    """Dy, gate, up -> dgate, dup, as far as there is memory for them."""
    gate = matrices[1]
    if gate.numel():
        strides = (each.stride(0) for each in matrices)
        _backward_kernel[_grid(gate)](
            *matrices, *(gate if each is None else each for each in out), gate.shape[1], *strides, out_stride,
            kind, gated, *(each is not None for each in out), _BLOCK,
        )  # fmt: skip


def _grid(x: Tensor) -> tuple[int]:
    return (x.shape[0] * triton.cdiv(x.shape[1], _BLOCK),)
