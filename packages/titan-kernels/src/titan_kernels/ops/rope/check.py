"""What the arguments have to be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from titan_kernels.checks import described, device_problems, is_float, raise_problems

__all__ = ["check"]

_LAYOUTS = {"bthd": (0, 1, 3), "bhtd": (0, 2, 3)}  # dimensions of B, T and D
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def check(
    tensors: Mapping[str, Tensor], cos: Tensor, sin: Tensor, positions: Tensor | None, layout: str
) -> None:
    """See :func:`titan_kernels.ops.rope`.

    Args:
        tensors: The tensors to rotate by the names of their arguments.
        cos: Cosines.
        sin: Sines.
        positions: Positions, if any.
        layout: The order of dimensions.

    Raises:
        ValueError: Something does not fit; the message lists everything that does not.
    """
    if layout not in _LAYOUTS:
        raise ValueError(f"layout ({layout!r}): it must be 'bthd' or 'bhtd'")
    order = f"({', '.join(layout.upper())})"
    found = [
        f"{name} ({described(x)}): it must be fp16, bf16, fp32 or float64 and {order} with an even D"
        for name, x in tensors.items()
        if x.dim() != 4 or not is_float(x.dtype) or x.shape[-1] % 2
    ]
    if not found:
        (name, x), *others = tensors.items()
        sizes = tuple(x.shape[i] for i in _LAYOUTS[layout])
        found += [
            f"{other} ({described(y)}): it must be like {name} ({described(x)}) but for the number of heads"
            for other, y in others
            if tuple(y.shape[i] for i in _LAYOUTS[layout]) != sizes or y.dtype != x.dtype
        ]
        found += [*_table_problems(x, cos, sin, sizes, positions), *_position_problems(positions, sizes)]
    found += device_problems(**tensors, cos=cos, sin=sin, positions=positions)
    raise_problems(found)


def _table_problems(
    x: Tensor, cos: Tensor, sin: Tensor, sizes: tuple[int, ...], positions: Tensor | None
) -> Iterator[str]:
    _, time, d = sizes
    for name, table in (("cos", cos), ("sin", sin)):
        if table.dim() != 2 or table.shape[-1] > d // 2 or table.shape[-1] == 0 or table.shape != cos.shape:
            rule = f"it must be (positions, pairs), with at most {d // 2} pairs, like cos"
            yield f"{name} ({described(table)}): {rule}"
        if table.dtype not in (torch.float32, x.dtype) or table.dtype != cos.dtype:
            yield f"{name} ({described(table)}): both tables must be fp32 or both {x.dtype}"
        if table.requires_grad:
            yield f"{name} requires a gradient, but the tables are constants; pass {name}.detach()"
    if positions is None and cos.dim() == 2 and cos.shape[0] < time:
        yield f"cos ({described(cos)}): it has fewer rows than positions, {time}; make longer tables"


def _position_problems(positions: Tensor | None, sizes: tuple[int, ...]) -> Iterator[str]:
    if positions is None:
        return
    batch, time, _ = sizes
    if positions.dtype not in _INTEGERS or tuple(positions.shape) not in ((time,), (1, time), (batch, time)):
        yield f"positions ({described(positions)}): they must be integers, ({time},) or ({batch}, {time})"
