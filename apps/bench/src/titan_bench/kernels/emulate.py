"""Kernels without a GPU: exact counts from the emulator, times from the static performance model."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from titan_bench.errors import BenchError
from titan_kernels import device, images, model
from titan_kernels.cases import Case
from titan_kernels.emulator import LaunchReport
from titan_kernels.errors import TitanKernelsError
from titan_kernels.occupancy import occupancy
from titan_kernels.registry import Op
from titan_kernels.testing import Truth, arguments, clone, results, running

__all__ = ["CARDS", "KernelRow", "emulate"]

# Label, the driver's name, capability.
CARDS = (
    ("Titan V", "NVIDIA TITAN V", (7, 0)),
    ("Titan RTX", "NVIDIA TITAN RTX", (7, 5)),
    ("T4", "Tesla T4", (7, 5)),
    ("V100", "Tesla V100-SXM2-16GB", (7, 0)),
)
_ARCHITECTURES = {(7, 0): "sm_70", (7, 5): "sm_75"}
_SAMPLED_BLOCKS = 8
_ERROR_FACTOR = 1.5  # the bar of the tests: an operator that misses it gets no figures


@dataclass(frozen=True)
class KernelRow:
    """Figures of one operator at one shape.

    Args:
        op: The operator's name.
        case: The label of its arguments.
        kernels: The launches' kernels, in order.
        sectors: Sectors of global memory over the algorithmic minimum.
        wavefronts: Wavefronts of shared memory over the ideal; 1 where there are none.
        registers: Per thread, the most of any kernel on sm_75.
        spills: Bytes of spills, all kernels and architectures.
        occupancy: Least of any kernel, by architecture.
        microseconds: Predicted time by card.
        bound: What takes longest, by card.
        of_bound: The binding units' own time over the predicted one, by card.
    """

    op: str
    case: str
    kernels: tuple[str, ...]
    sectors: float
    wavefronts: float
    registers: int
    spills: int
    occupancy: dict[str, float]
    microseconds: dict[str, float]
    bound: dict[str, str]
    of_bound: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


def emulate(ops: Iterable[Op], dtype: torch.dtype, tell: Callable[[str], None]) -> list[KernelRow]:
    """Verify each operator, then count its realistic cases and predict their times.

    Args:
        ops: Operators with CUDA kernels.
        dtype: The dtype of their arguments, where the case is for it.
        tell: Called with a line per operator.

    Raises:
        BenchError: An operator's result is wrong, so that its speed does not matter.
    """
    rows = []
    for op in ops:
        cases = [case for case in op.cases() if case.realistic and dtype in case.dtypes]
        tell(f"{op.name}: {len(cases)} shapes")
        _verify(op, dtype)
        rows += [_row(op, case, dtype) for case in cases]
    return rows


def _verify(op: Op, dtype: torch.dtype) -> None:
    case = next(each for each in op.cases() if not each.realistic and dtype in each.dtypes)
    args = arguments(case, dtype)
    truth = Truth.of(op, args)
    try:
        with running("cuda"):
            problems = truth.problems(results(op, clone(args)), _ERROR_FACTOR)
    except TitanKernelsError as error:
        problems = [str(error)]
    if problems:
        raise BenchError(
            f"{op.name} ({case.label}) is wrong, so its speed says nothing: {'; '.join(problems)}"
        )


def _row(op: Op, case: Case, dtype: torch.dtype) -> KernelRow:
    args = arguments(case, dtype)
    with running("cuda", count=True, check=False, blocks=_SAMPLED_BLOCKS) as session:
        outputs = op(*args)
    launches = session.launches if session is not None else []
    predictions = {
        label: [_predict(each, name, capability) for each in launches] for label, name, capability in CARDS
    }
    infos = {arch: [_info(each, arch) for each in launches] for arch in _ARCHITECTURES.values()}
    return KernelRow(
        op=op.name,
        case=case.label,
        kernels=tuple(each.kernel for each in launches),
        sectors=_sectors(launches) * 32 / op.minimum_bytes_of(args, outputs),
        wavefronts=_wavefronts(launches),
        registers=max(each.registers for each in infos["sm_75"]),
        spills=sum(i.spill_stores + i.spill_loads for each in infos.values() for i in each),
        occupancy={
            arch: min(_occupancy(each, capability) for each in launches)
            for capability, arch in _ARCHITECTURES.items()
        },
        microseconds={card: sum(p.microseconds for p in each) for card, each in predictions.items()},
        bound={card: max(each, key=lambda p: p.microseconds).bound for card, each in predictions.items()},
        of_bound={
            card: sum(p.terms[p.bound] for p in each) / sum(p.microseconds for p in each)
            for card, each in predictions.items()
        },
    )


def _info(launch: LaunchReport, arch: str) -> images.KernelInfo:
    kernels = images.info(launch.unit, arch)
    if launch.kernel not in kernels:
        raise BenchError(
            f"{launch.unit} ({launch.kernel}): the installed titan_kernels has no such kernel for {arch}; "
            "its sources changed since it was built, install it again"
        )
    return kernels[launch.kernel]


def _scale(launch: LaunchReport) -> float:
    return math.prod(launch.grid) / max(1, launch.blocks_run)


def _sectors(launches: Sequence[LaunchReport]) -> float:
    totals = ((each.counters, _scale(each)) for each in launches)
    return sum((c.global_load_sectors + c.global_store_sectors) * scale for c, scale in totals)


def _wavefronts(launches: Sequence[LaunchReport]) -> float:
    counters = [each.counters for each in launches]
    used = sum(c.shared_load_wavefronts + c.shared_store_wavefronts for c in counters)
    ideal = used - sum(c.bank_conflicts for c in counters)
    return used / ideal if ideal else 1.0


def _occupancy(launch: LaunchReport, capability: tuple[int, int]) -> float:
    info = _info(launch, _ARCHITECTURES[capability])
    dynamic = max(0, launch.shared_bytes - info.static_shared)
    return occupancy(info, math.prod(launch.block), dynamic, capability).fraction


def _predict(launch: LaunchReport, name: str, capability: tuple[int, int]) -> model.Prediction:
    card = device.lookup(name, capability)
    if card is None:
        raise BenchError(f"card ({name}): not in the table of titan_kernels.device")
    info = _info(launch, _ARCHITECTURES[capability])
    return model.predict(model.workload(launch, info, capability), card)
