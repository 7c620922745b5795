"""Rows with parameters and gradient sums by column, the host side of ``include/titan/columns.cuh``."""

from __future__ import annotations

import torch
from torch import Tensor

from titan_kernels.platforms import cuda_ready, suffix
from titan_kernels.registry import YES, Verdict, no
from titan_kernels.rows import SHARED_LIMIT, transposed_stride
from titan_kernels.teams import TEAM_MAX_THREADS, TeamPlan, plan_teams

__all__ = ["BACKWARD_OCCUPANCY", "FORWARD_OCCUPANCY", "ColumnPlan", "pointers"]

# What kernels that hold rows in registers promise; the least is that of long rows that are no whole vectors.
FORWARD_OCCUPANCY = {"sm_70": 0.25, "sm_75": 0.28}
BACKWARD_OCCUPANCY = {"sm_70": 0.14, "sm_75": 0.28}

_ELEMENTS_PER_THREAD = 16
_LONGEST_ROW = TEAM_MAX_THREADS * _ELEMENTS_PER_THREAD
# Forward: small blocks and two of them per multiprocessor; while one waits at a barrier, the other loads.
# Backward: one large block, for each block writes a row of sums.
_FORWARD_BLOCK, _BACKWARD_BLOCK = 256, 512
_THREADS_PER_MULTIPROCESSOR = 512


class ColumnPlan:
    """How a launch shares rows of ``columns`` elements, and what shared memory it needs.

    Args:
        columns: Elements of a row.
        dtype: Of the rows.
        parameters: Parameters with a value per column.
        sums: Gradient sums per column, in a backward; 0 in a forward.
    """

    def __init__(self, columns: int, dtype: torch.dtype, parameters: int, sums: int = 0) -> None:
        width = 16 // dtype.itemsize
        block = _BACKWARD_BLOCK if sums else _FORWARD_BLOCK
        self.aligned = columns % width == 0
        self.stride = transposed_stride(columns, dtype)
        self._row_bytes = 4 * width * self.stride
        self._kept = 0 if self.aligned else sums
        self._parameters = 1 if self.aligned else parameters
        if not self.aligned and sums:
            block = _FORWARD_BLOCK  # a row of sums per team: fewer teams
        self.teams: TeamPlan = plan_teams(columns, _ELEMENTS_PER_THREAD, block)
        self._columns, self._dtype = columns, dtype

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory: rows of fp32 values."""
        return self._row_bytes * (self._parameters + self._kept * self.teams.teams)

    @property
    def variant(self) -> str:
        """The end of the kernel's name."""
        return f"{suffix(self._dtype)}_{'aligned' if self.aligned else 'shifted'}"

    def grid(self, rows: int, device: torch.device) -> int:
        """Blocks; each walks over many rows."""
        return self.teams.grid(rows, device, _THREADS_PER_MULTIPROCESSOR)

    def supports(
        self, x: Tensor, parameters: tuple[Tensor | None, ...], others: tuple[Tensor | None, ...]
    ) -> Verdict:
        """Whether kernels with this plan serve a call.

        Args:
            x: The rows.
            parameters: In the dtype of ``x`` or fp32.
            others: Tensors like ``x``.
        """
        ready = cuda_ready(x, *parameters, *others)
        if not ready.ok:
            return ready
        if self._columns > _LONGEST_ROW:
            return no(f"rows of {self._columns} elements are longer than {_LONGEST_ROW}")
        if self.shared > SHARED_LIMIT:
            return no(f"rows of {self._columns} elements are no whole vectors and too long for shared memory")
        for each in parameters:
            if each is not None and each.dtype not in (x.dtype, torch.float32):
                return no(f"a parameter's dtype ({each.dtype}) is neither that of x ({x.dtype}) nor fp32")
        if any(each is not None and each.dtype != x.dtype for each in others):
            return no("x, the residual and the gradients have different dtypes")
        return YES


def pointers(parameter: Tensor | None, x: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """A kernel's two pointers to a parameter: one in the dtype of ``x``, one in fp32."""
    if parameter is None:
        return None, None
    given = parameter.contiguous()
    return (given, None) if given.dtype == x.dtype else (None, given)
