"""Gated activations of feed-forward layers, and the squared ReLU.

``y = activation(gate) * up``; Shazeer, "GLU Variants Improve Transformer", arXiv:2002.05202.  The
squared ReLU is from So et al., "Primer", arXiv:2109.08668.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

from titan_kernels import checks
from titan_kernels.ops.glu import cases, cuda, reference
from titan_kernels.platforms import always, triton_implementation
from titan_kernels.registry import Implementation, Op

__all__ = ["geglu", "relu2", "swiglu"]

_TRITON = "titan_kernels.ops.glu.triton"


def swiglu(gate: Tensor, up: Tensor | None = None) -> Tensor:
    """``silu(gate) * up``, computed in fp32 and rounded once.

    Args:
        gate: (..., F), floating point; without ``up``, (..., 2F) with the gate in the first half and
            the other factor in the second, as a fused projection gives them.
        up: Like ``gate``.

    Returns:
        (..., F), contiguous.  Rows whose elements are contiguous are read where they are; the gradient
        of a packed tensor is written as a whole.

    Raises:
        ValueError: Shapes or dtypes do not fit together.
    """
    return _glu(gate, up, "silu")


def geglu(gate: Tensor, up: Tensor | None = None, *, approximate: Literal["tanh", "none"] = "tanh") -> Tensor:
    """``gelu(gate) * up``, computed in fp32 and rounded once.

    Args:
        gate: (..., F), or (..., 2F) without ``up``; see :func:`swiglu`.
        up: Like ``gate``.
        approximate: ``"tanh"``, or ``"none"`` for the error function, as in ``torch.nn.functional.gelu``.

    Returns:
        (..., F), contiguous.

    Raises:
        ValueError: Shapes or dtypes do not fit together, or ``approximate`` is neither.
    """
    if approximate not in ("tanh", "none"):
        raise ValueError(f"approximate ({approximate!r}): it must be 'tanh' or 'none'")
    return _glu(gate, up, "gelu_tanh" if approximate == "tanh" else "gelu")


def relu2(x: Tensor) -> Tensor:
    """``relu(x) ** 2``, computed in fp32 and rounded once.

    Args:
        x: Any shape, floating point.

    Returns:
        Shaped and typed like ``x``, contiguous.

    Raises:
        ValueError: ``x`` is not floating point.
    """
    checks.raise_problems(checks.float_problems(x=x))
    y: Tensor = RELU2(x)
    return y


def _glu(gate: Tensor, up: Tensor | None, kind: str) -> Tensor:
    problems = [
        *checks.row_problems("gate", gate, "(..., F)"),
        *checks.like_problems("up", up, "gate", gate),
        *checks.device_problems(gate=gate, up=up),
    ]
    if up is None and gate.dim() > 0 and gate.shape[-1] % 2:
        problems.append(
            f"gate (shape {tuple(gate.shape)}): without up it must hold two halves, (..., 2F); "
            "pass up otherwise"
        )
    checks.raise_problems(problems)
    y: Tensor = GLU(gate, up, kind)
    return y


def _empty(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _fake(gate: Tensor, up: Tensor | None, kind: str) -> Tensor:
    return _empty(gate) if up is not None else gate.new_empty((*gate.shape[:-1], gate.shape[-1] // 2))


GLU = Op(
    schema="glu(Tensor gate, Tensor? up, str kind) -> Tensor",
    fake=_fake,
    implementations=(
        Implementation("cuda", cuda.supports, cuda.glu),
        triton_implementation(_TRITON, "glu"),
        Implementation("reference", always, reference.glu),
    ),
    cases=cases.forward_cases,
    functions=("swiglu", "geglu"),
)

GLU_BACKWARD = Op(
    schema="glu_backward(Tensor dy, Tensor gate, Tensor? up, str kind, bool[2] output_mask)"
    " -> (Tensor?, Tensor?)",
    fake=lambda dy, gate, up, kind, mask: tuple(_empty(gate) if wanted else None for wanted in mask),
    implementations=(
        Implementation("cuda", cuda.supports_backward, cuda.glu_backward),
        triton_implementation(_TRITON, "glu_backward"),
        Implementation("reference", always, reference.glu_backward),
    ),
    cases=cases.backward_cases,
    functions=("swiglu", "geglu"),
)

RELU2 = Op(
    schema="relu2(Tensor x) -> Tensor",
    fake=_empty,
    implementations=(
        Implementation("cuda", cuda.supports_relu2, cuda.relu2),
        triton_implementation(_TRITON, "relu2"),
        Implementation("reference", always, reference.relu2),
    ),
    cases=cases.relu2_cases,
)

RELU2_BACKWARD = Op(
    schema="relu2_backward(Tensor dy, Tensor x) -> Tensor",
    fake=lambda dy, x: _empty(x),
    implementations=(
        Implementation("cuda", cuda.supports_relu2_backward, cuda.relu2_backward),
        triton_implementation(_TRITON, "relu2_backward"),
        Implementation("reference", always, reference.relu2_backward),
    ),
    cases=cases.relu2_backward_cases,
    functions=("relu2",),
)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    gate, up, ctx.kind = inputs
    ctx.save_for_backward(gate, up)


def _backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
    gate, up = ctx.saved_tensors
    return *GLU_BACKWARD(dy, gate, up, ctx.kind, ctx.needs_input_grad[:2]), None


def _save_relu2(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward_relu2(ctx: Any, dy: Tensor) -> Tensor:
    dx: Tensor = RELU2_BACKWARD(dy, *ctx.saved_tensors)
    return dx


GLU.register_autograd(_backward, _save)
RELU2.register_autograd(_backward_relu2, _save_relu2)
