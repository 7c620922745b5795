"""Launches of the CUDA kernels of this room."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from titan_kernels.flat import FLAT_THREADS, flat_grid, flat_rows_geometry
from titan_kernels.launch import launch
from titan_kernels.ops.glu.matrices import gradients, halves, matrix, one_row_if_contiguous
from titan_kernels.platforms import cuda_ready, suffix
from titan_kernels.registry import Verdict, no

__all__ = [
    "glu",
    "glu_backward",
    "relu2",
    "relu2_backward",
    "supports",
    "supports_backward",
    "supports_relu2",
    "supports_relu2_backward",
]

_UNIT = "glu"


def _supports(x: Tensor, *others: Tensor | None) -> Verdict:
    if any(each is not None and each.dtype != x.dtype for each in others):
        return no("the tensors have different dtypes")
    return cuda_ready(x, *others)


def supports(gate: Tensor, up: Tensor | None, kind: str) -> Verdict:
    """Whether :func:`glu` serves the call."""
    return _supports(gate, up)


def supports_backward(
    dy: Tensor, gate: Tensor, up: Tensor | None, kind: str, output_mask: Sequence[bool]
) -> Verdict:
    """Whether :func:`glu_backward` serves the call."""
    return _supports(gate, up, dy)


def supports_relu2(x: Tensor) -> Verdict:
    """Whether :func:`relu2` serves the call."""
    return _supports(x)


def supports_relu2_backward(dy: Tensor, x: Tensor) -> Verdict:
    """Whether :func:`relu2_backward` serves the call."""
    return _supports(x, dy)


def glu(gate: Tensor, up: Tensor | None, kind: str) -> Tensor:
    """Forward."""
    g, u = halves(gate, up)
    y = g.new_empty((*gate.shape[:-1], g.shape[1]))
    g, u = one_row_if_contiguous(g, u)
    rows, columns = g.shape
    grid, block = flat_rows_geometry(rows, columns, g.dtype, g.device)
    args = (g, u, y, rows, columns, g.stride(0), u.stride(0))
    launch(_UNIT, f"glu_forward_{kind}_{suffix(g.dtype)}", grid, block, args)
    return y


def glu_backward(
    dy: Tensor, gate: Tensor, up: Tensor | None, kind: str, output_mask: Sequence[bool]
) -> tuple[Tensor | None, ...]:
    """Gradients of gate and up, as far as wanted, or of the packed tensor as a whole."""
    whole, parts = gradients(gate, up, output_mask)
    d, g, u = one_row_if_contiguous(matrix(dy), *halves(gate, up))
    rows, columns = g.shape
    grid, block = flat_rows_geometry(rows, columns, g.dtype, g.device)
    args = (d, g, u, *parts, rows, columns, d.stride(0), g.stride(0), u.stride(0), gate.shape[-1])
    launch(_UNIT, f"glu_backward_{kind}_{suffix(g.dtype)}", grid, block, args)
    return whole


def relu2(x: Tensor) -> Tensor:
    """Forward."""
    x = x.contiguous()
    y = torch.empty_like(x)
    grid = flat_grid(x.numel(), x.dtype, x.device)
    launch(_UNIT, f"glu_relu2_forward_{suffix(x.dtype)}", grid, FLAT_THREADS, (x, y, x.numel()))
    return y


def relu2_backward(dy: Tensor, x: Tensor) -> Tensor:
    """Gradient of x."""
    dy, x = dy.contiguous(), x.contiguous()
    dx = torch.empty_like(x)
    grid = flat_grid(x.numel(), x.dtype, x.device)
    launch(_UNIT, f"glu_relu2_backward_{suffix(x.dtype)}", grid, FLAT_THREADS, (dy, x, dx, x.numel()))
    return dx
