"""Arguments for an operator, shared by tests, counters and benchmarks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

__all__ = ["Case", "Maker"]


@dataclass
class Maker:
    """Makes the tensors of a case: one device, one dtype, one seed.

    Args:
        device: Where the tensors are.
        dtype: Of those that have no dtype of their own.
        seed: Of the random numbers.
        values: If not, large tensors are zero: enough where only accesses are counted, and much faster.
            Integers and uniform numbers, of which indices and masks are made, keep their values.
    """

    device: torch.device
    dtype: torch.dtype
    seed: int = 0
    values: bool = True

    def __post_init__(self) -> None:
        self._generator = torch.Generator().manual_seed(self.seed)

    def normal(self, *shape: int, scale: float = 1.0, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Normally distributed values; the same ones on every device."""
        if not self.values:
            return torch.zeros(shape, device=self.device, dtype=dtype or self.dtype)
        x = torch.randn(shape, generator=self._generator, dtype=torch.float32) * scale
        return x.to(self.device, dtype or self.dtype)

    def uniform(self, *shape: int, low: float, high: float, dtype: torch.dtype | None = None) -> torch.Tensor:
        """Uniformly distributed values in [low, high)."""
        x = torch.rand(shape, generator=self._generator, dtype=torch.float32) * (high - low) + low
        return x.to(self.device, dtype or self.dtype)

    def integers(self, *shape: int, high: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """Integers in [0, high)."""
        return torch.randint(high, shape, generator=self._generator, dtype=dtype).to(self.device)

    def derived(self, function: Callable[..., Any], *args: Any) -> Any:
        """What ``function`` computes from other arguments of the case, such as a forward's statistics."""
        if self.values:
            return function(*args)
        shapes = function(*pytree.tree_map_only(torch.Tensor, lambda x: x.to("meta"), args))
        return pytree.tree_map_only(torch.Tensor, lambda x: torch.zeros_like(x, device=self.device), shapes)


@dataclass(frozen=True)
class Case:
    """One set of arguments.

    Args:
        label: What the case shows, such as ``"768 columns"``; unique in its operator.
        make: Builds the operator's positional arguments.
        realistic: A shape as in training: for sector counts and benchmarks, too large for every test.
        sector_bound: Most sectors that the CUDA kernels may touch in a realistic case, as a multiple
            of the algorithmic minimum.
        dtypes: The dtypes that the case is for.
    """

    label: str
    make: Callable[[Maker], tuple[Any, ...]]
    realistic: bool = False
    sector_bound: float = 1.02
    dtypes: tuple[torch.dtype, ...] = (torch.float16, torch.bfloat16, torch.float32)
