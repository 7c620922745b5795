"""Figures of one operator at one shape: exact counts from the emulator, times from the performance model."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from titan_bench.errors import BenchError, VerificationError
from titan_kernels import device, images, model, sources
from titan_kernels.cases import Case
from titan_kernels.device import DeviceFacts
from titan_kernels.emulator import LaunchReport
from titan_kernels.errors import TitanKernelsError
from titan_kernels.occupancy import occupancy
from titan_kernels.registry import Op
from titan_kernels.testing import Truth, arguments, clone, results, running

__all__ = ["CARDS", "KernelRow", "figures", "verify"]

# The driver's name and the capability.
_NAMES = {
    "Titan V": ("NVIDIA TITAN V", (7, 0)),
    "Titan RTX": ("NVIDIA TITAN RTX", (7, 5)),
    "T4": ("Tesla T4", (7, 5)),
    "V100": ("Tesla V100-SXM2-16GB", (7, 0)),
}
CARDS = tuple(_NAMES)
"""Labels of the cards whose times are predicted."""
_ARCHITECTURES = {(7, 0): "sm_70", (7, 5): "sm_75"}
_ERROR_FACTOR = 1.5  # the bar of the tests: an operator that misses it gets no figures


@dataclass(frozen=True)
class KernelRow:
    """Figures of one operator at one shape.

    Args:
        op: The operator's name.
        case: The label of its arguments.
        kernels: The launches' kernels, in order.
        sectors: Sectors of global memory over the algorithmic minimum; the most of any card.
        wavefronts: Wavefronts of shared memory over the ideal; 1 where there are none.
        registers: Per thread, the most of any kernel on sm_75.
        spills: Bytes of spills, all kernels and architectures.
        occupancy: Least of any kernel, by architecture.
        microseconds: Predicted time of the launches by card.
        bound: What takes longest, by card.
        of_bound: The binding units' own time over the predicted one, by card.
        left_out: Operators of PyTorch that run beside the launches, whose time nobody predicts.
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
    left_out: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return asdict(self)


class _Beside(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the operators of PyTorch that take time on a device, as allocations and views do not."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.partition("::")[2]
        if not func.is_view and not name.startswith(("empty", "new_empty")):
            self.names.append(name)
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class _Run:
    """What an operator launched on a card, every block counted."""

    launches: Sequence[LaunchReport]
    beside: tuple[str, ...]
    sectors: float  # over the minimum
    depends: bool  # on the card's multiprocessors


def verify(op: Op, dtype: torch.dtype) -> None:
    """Check an operator's CUDA kernels at a small shape.

    Raises:
        VerificationError: The result is wrong, so that its speed does not matter.
        BenchError: The machine code is not that of the sources, which the emulator runs.
        TitanKernelsError: The kernels failed.
    """
    case = next(each for each in op.cases() if not each.realistic and dtype in each.dtypes)
    args = arguments(case, dtype)
    truth = Truth.of(op, args)
    with running("cuda") as session:
        problems = truth.problems(results(op, clone(args)), _ERROR_FACTOR)
    if problems:
        raise VerificationError(f"{case.label} is wrong, so its speed says nothing: {'; '.join(problems)}")
    for unit in {each.unit for each in session.launches} if session is not None else ():
        if sources.changed(unit):
            raise BenchError(
                f"the machine code of unit {unit} is of other sources than those that the emulator runs: "
                "install it again (pip install packages/titan-kernels)"
            )


def figures(op: Op, case: Case, dtype: torch.dtype) -> KernelRow:
    """Count an operator's accesses at a shape for each size of grid, and predict its times.

    Raises:
        BenchError: There are fewer sectors than the least possible, so one of the two is not true.
    """
    cards = {label: _card(*name) for label, name in _NAMES.items()}
    by_size = _count_sizes(op, case, dtype, {card.sms for card in cards.values()})
    runs = {label: by_size[card.sms] for label, card in cards.items()}
    predicted = {
        label: [_predict(each, cards[label]) for each in run.launches] for label, run in runs.items()
    }
    totals = {label: sum(p.microseconds for p in each) for label, each in predicted.items()}
    by_arch = {_ARCHITECTURES[card.capability]: runs[label].launches for label, card in cards.items()}
    infos = {arch: [_info(each, arch) for each in launches] for arch, launches in by_arch.items()}
    run = runs["Titan RTX"]
    return KernelRow(
        op=op.name,
        case=case.label,
        kernels=tuple(each.kernel for each in run.launches),
        sectors=max(each.sectors for each in by_size.values()),
        wavefronts=_wavefronts(run.launches),
        registers=max(each.registers for each in infos["sm_75"]),
        spills=sum(each.spill_stores + each.spill_loads for kernels in infos.values() for each in kernels),
        occupancy={arch: _least_occupancy(launches, arch) for arch, launches in by_arch.items()},
        microseconds=totals,
        bound={label: max(each, key=lambda p: p.microseconds).bound for label, each in predicted.items()},
        of_bound={
            label: sum(p.terms[p.bound] for p in each) / totals[label] for label, each in predicted.items()
        },
        left_out=run.beside,
    )


def _card(name: str, capability: tuple[int, int]) -> DeviceFacts:
    card = device.lookup(name, capability)
    if card is None:
        raise BenchError(f"card ({name}): not in the table of titan_kernels.device")
    return card


def _count_sizes(op: Op, case: Case, dtype: torch.dtype, sizes: set[int]) -> dict[int, _Run]:
    """By number of multiprocessors; one run stands for all where that makes no difference."""
    first, *others = sorted(sizes)
    run = _count(op, case, dtype, first)
    return {first: run} | {each: _count(op, case, dtype, each) if run.depends else run for each in others}


def _count(op: Op, case: Case, dtype: torch.dtype, multiprocessors: int) -> _Run:
    # What is accessed does not depend on the values, and to fill large tensors takes longer than to count.
    args = arguments(case, dtype, values=False)
    options = {"count": True, "check": False, "poison": False, "time_limit": 0.0}
    with running("cuda", **options, multiprocessors=multiprocessors) as session, _Beside() as beside:
        outputs = op.run(*args)
    launches = session.launches if session is not None else []
    counters = [each.counters for each in launches]
    used = sum(each.global_load_sectors + each.global_store_sectors for each in counters)
    ratio = used * 32 / op.minimum_bytes_of(args, outputs)
    if ratio < 1.0 - 1e-6:
        raise BenchError(
            f"{case.label}: {ratio:.6f} of the least traffic: minimum_bytes promises too much, or the "
            "kernels leave something out"
        )
    depends = session is None or session.multiprocessors_used
    return _Run(launches, tuple(dict.fromkeys(beside.names)), ratio, depends)


def _info(launch: LaunchReport, arch: str) -> images.KernelInfo:
    try:
        return images.info(launch.unit, arch)[launch.kernel]
    except KeyError:
        raise TitanKernelsError(
            f"unit {launch.unit} has no kernel {launch.kernel} for {arch}: install it again "
            "(pip install packages/titan-kernels)"
        ) from None


def _wavefronts(launches: Sequence[LaunchReport]) -> float:
    counters = [each.counters for each in launches]
    used = sum(c.shared_load_wavefronts + c.shared_store_wavefronts for c in counters)
    ideal = used - sum(c.bank_conflicts for c in counters)
    return used / ideal if ideal else 1.0


def _least_occupancy(launches: Sequence[LaunchReport], arch: str) -> float:
    capabilities: Mapping[str, tuple[int, int]] = {arch: each for each, arch in _ARCHITECTURES.items()}

    def of(launch: LaunchReport) -> float:
        info = _info(launch, arch)
        dynamic = max(0, launch.shared_bytes - info.static_shared)
        return occupancy(info, math.prod(launch.block), dynamic, capabilities[arch]).fraction

    return min(map(of, launches))


def _predict(launch: LaunchReport, card: DeviceFacts) -> model.Prediction:
    info = _info(launch, _ARCHITECTURES[card.capability])
    return model.predict(model.workload(launch, info, card.capability), card)
