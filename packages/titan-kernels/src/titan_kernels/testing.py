"""Runs any operator in any implementation, and measures its error against float64.

The tests use it, and the benchmarks before they time anything.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from titan_kernels.cases import Case, Maker
from titan_kernels.emulator import Session, emulated
from titan_kernels.registry import Op, prefer

__all__ = ["DEVICE", "DTYPES", "Truth", "arguments", "clone", "results", "running"]

# Where the tests run: the CPU with the emulator, or the GPU (`nox -s gpu` says so).
DEVICE = torch.device(os.environ.get("TITAN_TEST_DEVICE", "cpu"))
_MEASURES: dict[str, Callable[[Tensor], Tensor]] = {
    "largest": lambda error: error.max(),
    "mean square": lambda error: error.square().mean().sqrt(),
}
DTYPES = {torch.float16: "fp16", torch.bfloat16: "bf16", torch.float32: "fp32"}


@contextlib.contextmanager
def running(implementation: str, **emulation: Any) -> Iterator[Session | None]:
    """Use an implementation by name: CUDA kernels on the GPU, or emulated where there is none."""
    with contextlib.ExitStack() as stack:
        session = None
        if implementation == "cuda" and DEVICE.type == "cpu":
            session = stack.enter_context(emulated(**emulation))
        stack.enter_context(prefer(implementation))
        yield session


def clone(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same arguments in other memory with the same strides and alignment."""

    def copy(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        storage = x.untyped_storage().clone()
        return torch.empty(0, dtype=x.dtype, device=x.device).set_(
            storage, x.storage_offset(), x.shape, x.stride()
        )

    return pytree.tree_map(copy, args)


def double(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The same arguments in float64."""
    return pytree.tree_map(
        lambda x: x.double() if isinstance(x, Tensor) and x.is_floating_point() else x, args
    )


def results(op: Op, args: tuple[Any, ...]) -> list[Tensor]:
    """Everything that the operator returns or writes into its arguments."""
    returned = op(*args)
    written = [
        value
        for value, argument in zip(args, op.schema_arguments, strict=False)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return [x for x in pytree.tree_leaves([returned, written]) if isinstance(x, Tensor)]


@dataclass
class Truth:
    """The float64 results of a case, and the error of the reference at the case's own dtype."""

    exact: list[Tensor]
    reference: list[Tensor]

    @classmethod
    def of(cls, op: Op, args: tuple[Any, ...]) -> Truth:
        """Run the reference twice, in float64 and as it is."""
        with prefer("reference"):
            return cls(results(op, double(clone(args))), results(op, clone(args)))

    def problems(
        self, got: list[Tensor], factor: float, ulps: float = 0.0, dtype: torch.dtype | None = None
    ) -> list[str]:
        """Where ``got`` is worse than ``factor`` times the reference's error.

        Args:
            got: The results.
            factor: Of the reference's error.
            ulps: Further error allowed, in units in the last place of the largest result.
            dtype: Whose units; each result's own if not given.
        """
        found = [] if len(got) == len(self.exact) else [f"{len(got)} outputs, not {len(self.exact)}"]
        for i, (x, exact, reference) in enumerate(zip(got, self.exact, self.reference, strict=False)):
            relative = ulps * torch.finfo(dtype or x.dtype).eps if ulps else 0.0
            if (x.shape, x.dtype) != (reference.shape, reference.dtype):
                found.append(
                    f"output {i}: {x.dtype} {tuple(x.shape)}, not {reference.dtype} {tuple(reference.shape)}"
                )
            elif problem := _problem(x, exact, reference, factor, relative):
                found.append(f"output {i}: {problem}")
        return found


def _problem(x: Tensor, exact: Tensor, reference: Tensor, factor: float, relative: float) -> str | None:
    if not x.is_floating_point():
        return None if torch.equal(x, reference) else "integers differ from the reference"
    special = ~torch.isfinite(reference)
    if not torch.equal(x[special].nan_to_num(7.0), reference[special].nan_to_num(7.0)):
        return "NaN or infinity where the reference has none, or the other way round"
    error, bound = (x.double() - exact)[~special].abs(), (reference.double() - exact)[~special].abs()
    if error.numel() == 0:
        return None
    # Two roundings of fp32 at the size of the result: sums in another order are as good.
    slack = (2 * 2**-24 + relative) * exact[~special].abs().max()
    for name, measure in _MEASURES.items():
        if not measure(error) <= factor * measure(bound) + slack:  # so that NaN is a problem too
            return f"{name} error {measure(error):.3g}, while the reference's is {measure(bound):.3g}"
    return None


def arguments(
    case: Case, dtype: torch.dtype, seed: int = 0, device: torch.device = DEVICE, values: bool = True
) -> tuple[Any, ...]:
    """The case's arguments, on the device under test if not said otherwise; see :class:`Maker`."""
    return case.make(Maker(device, dtype, seed, values))
