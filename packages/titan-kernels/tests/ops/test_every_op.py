"""What holds for every operator of the registry, whatever it computes; a new room is picked up by itself."""

import functools
import math
import pkgutil
import types
from pathlib import Path

import pytest
import torch
from torch.utils import _pytree as pytree

import titan_kernels.ops
from titan_kernels import explain, images, sources
from titan_kernels.errors import TitanKernelsError
from titan_kernels.occupancy import occupancy
from titan_kernels.registry import ops
from titan_kernels.testing import DEVICE, DTYPES, Truth, arguments, clone, results, running

OPS = ops()
FIRST = {op.name: op.cases()[0].label for op in OPS.values()}
# Triton's interpreter cuts fp32 off where hardware rounds, so bf16 may be units off where values add up.
_INTERPRETED_BF16_ULPS = 3.0
_INTERPRETED_ELEMENTS = 20_000


def elements(case):
    """Of the case's largest tensor."""
    leaves = pytree.tree_leaves(arguments(case, case.dtypes[0]))
    return max((x.numel() for x in leaves if isinstance(x, torch.Tensor)), default=0)


def dtypes(implementation, number, case):
    """The case's dtypes, fewer of them where Triton's interpreter runs, at a millisecond per program.

    There a dtype is a matter of loads, stores and casts, the same lines for every shape: one dtype shows
    what a large case is for, and bf16, whose rounding the interpreter gets wrong, is in every third case.
    """
    if implementation != "triton" or DEVICE.type != "cpu":
        return case.dtypes
    if elements(case) > _INTERPRETED_ELEMENTS:
        return case.dtypes[:1]
    return [each for each in case.dtypes if each != torch.bfloat16 or number % 3 == 0]


def small(*implementations):
    """One parameter set per operator, small case, implementation and dtype; all but the first are slow."""
    return [
        pytest.param(
            *(op, name, dtype, case),
            id=f"{op.name}-{name}-{DTYPES[dtype]}-{case.label}",
            marks=[] if case.label == FIRST[op.name] and dtype == case.dtypes[0] else [pytest.mark.slow],
        )
        for op in OPS.values()
        for number, case in enumerate(case for case in op.cases() if not case.realistic)
        for dtype in case.dtypes
        for name in (each.name for each in op.implementations)
        if name in implementations and dtype in dtypes(name, number, case)
    ]


def one_case():
    return [pytest.param(op, op.cases()[0], id=op.name) for op in OPS.values()]


@functools.lru_cache(maxsize=2)  # for the implementations, which come one after the other
def arguments_and_truth(op, dtype, case):
    args = arguments(case, dtype)
    return args, Truth.of(op, args)


@pytest.mark.parametrize(("op", "implementation", "dtype", "case"), small("cuda", "triton"))
def test_error_is_that_of_fp32_inside(op, implementation, dtype, case):
    args, truth = arguments_and_truth(op, dtype, case)
    interpreted = implementation == "triton" and dtype == torch.bfloat16 and DEVICE.type == "cpu"
    with running(implementation, seed=1):
        verdict = dict(op.explain(*args).verdicts)[implementation]
        if not verdict.ok:
            assert case.label in op.declined.get(implementation, ()), verdict.reason
            return
        got = results(op, clone(args))
    assert not truth.problems(got, 1.5, _INTERPRETED_BF16_ULPS if interpreted else 0.0, dtype)


def in_fp16(parameters):
    """One dtype of each case that has fp16: the schedule's part is the same code."""
    return [
        each
        for each in parameters
        if each.values[2] == torch.float16 or torch.float16 not in each.values[3].dtypes
    ]


@pytest.mark.parametrize(("op", "implementation", "dtype", "case"), in_fp16(small("cuda")))
def test_schedule_does_not_matter(op, implementation, dtype, case):
    args, seen = arguments(case, dtype), []
    for seed in (2, 3):
        with running(implementation, seed=seed):
            if not dict(op.explain(*args).verdicts)[implementation].ok:
                return
            seen.append(results(op, clone(args)))
    for first, second in zip(*seen, strict=True):
        torch.testing.assert_close(first, second, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("op", "case"), one_case())
def test_operator_is_well_formed(op, case):
    torch.library.opcheck(op.packet, clone(arguments(case, torch.float32)))


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_cases_are_named_apart_and_cover_odd_shapes(op):
    labels = [case.label for case in op.cases()]
    assert len(labels) == len(set(labels))
    assert any(case.realistic for case in op.cases()), "counters and benchmarks have nothing to run"


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
def test_every_implementation_explains_itself(op):
    case = op.cases()[0]
    explanation = explain(op.name, *arguments(case, torch.float32))
    assert explanation.chosen is not None
    for name, verdict in explanation.verdicts:
        assert verdict.ok or verdict.reason, name


def test_every_room_is_exported():
    rooms = {module.name for module in pkgutil.iter_modules(titan_kernels.ops.__path__)}
    for room in rooms:
        module = __import__(f"titan_kernels.ops.{room}", fromlist=["__all__"])
        for name in module.__all__:
            assert name in titan_kernels.ops.__all__, f"titan_kernels.ops does not export {room}.{name}"


ROOMS = sorted(path.parent.name for path in Path(titan_kernels.ops.__path__[0]).glob("*/kernel.cu"))
CAPABILITIES = {"sm_70": (7, 0), "sm_75": (7, 5)}
SHARED = {"sm_70": 96 * 1024, "sm_75": 64 * 1024}


@pytest.mark.parametrize("arch", SHARED)
@pytest.mark.parametrize("room", ROOMS)
def test_compiled_code_keeps_to_registers_and_shared_memory(room, arch):
    assert not sources.changed(room), (
        "other sources than those of the machine code: install the package again"
    )
    for kernel, info in images.info(room, arch).items():
        assert info.spill_stores == info.spill_loads == 0, f"{kernel} spills registers"
        assert info.registers * info.max_threads <= 65536, kernel
        assert info.static_shared <= SHARED[arch], kernel


def built(unit):
    """Whether there is compiled code of these sources; if not, the test above fails."""
    try:
        return not sources.changed(unit)
    except TitanKernelsError:
        return False


WAYS_OUT = {
    "registers": "Hold less of a row in a thread, or give TITAN_KERNEL a smaller largest block",
    "shared": "Ask for less shared memory per thread: a smaller tile, or more threads that share it",
    "warps": "Choose a block whose warps divide those of a multiprocessor",
    "blocks": "Choose a larger block",
}


def too_few_resident(launch, arch, least):
    """What keeps a launch from so large a share of a multiprocessor's warps, in words."""
    info = images.info(launch.unit, arch)[launch.kernel]
    dynamic, threads = max(0, launch.shared_bytes - info.static_shared), math.prod(launch.block)
    found = occupancy(info, threads, dynamic, CAPABILITIES[arch])
    if found.fraction >= least:
        return None
    return (
        f"{launch.kernel} on {arch}: {found.warps} warps, {found.fraction:.0%} of a multiprocessor's, stay "
        f"resident; {least:.0%} are promised. The limit is {found.limiter}: blocks of {threads} threads, "
        f"{info.registers} registers per thread, {info.static_shared + dynamic} bytes of shared memory. "
        f"{WAYS_OUT[found.limiter]}; or promise less: Op(occupancy=...)"
    )


@pytest.mark.parametrize(
    ("kernel", "shared", "limit"),
    [("rms_norm_backward_f16_aligned", 1024, "registers"), ("rms_norm_column_sum_f32", 40_000, "shared")],
)
def test_occupancy_problem_says_what_limits_it_and_what_to_do(kernel, shared, limit):
    launch = types.SimpleNamespace(unit="rms_norm", kernel=kernel, block=(256, 1, 1), shared_bytes=shared)
    problem = too_few_resident(launch, "sm_70", 0.99)
    assert f"99% are promised. The limit is {limit}: blocks of 256 threads" in problem
    assert f"{WAYS_OUT[limit]}; or promise less" in problem
    assert too_few_resident(launch, "sm_70", 0.1) is None


def realistic():
    return [
        pytest.param(op, case, id=f"{op.name}-{case.label}")
        for op in OPS.values()
        if "cuda" in (each.name for each in op.implementations)
        for case in op.cases()
        if case.realistic
    ]


@pytest.mark.slow
@pytest.mark.skipif(DEVICE.type != "cpu", reason="counts come from the emulator")
@pytest.mark.parametrize(("op", "case"), realistic())
def test_traffic_and_occupancy(op, case, monkeypatch):
    # What is accessed does not depend on the values, and to fill large tensors takes longer than to count.
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)
    dtype = torch.float16 if torch.float16 in case.dtypes else case.dtypes[0]
    args = arguments(case, dtype, values=False)
    with running("cuda", count=True, check=False, poison=False) as session:
        outputs = op(*args)
    sectors = 0
    for launch in session.launches:
        counters = launch.counters
        sectors += counters.global_load_sectors + counters.global_store_sectors
        assert counters.bank_conflicts == 0, f"{launch.kernel} has bank conflicts:\n{launch.table()}"
        for arch, least in op.occupancy.items() if built(launch.unit) else ():
            assert (problem := too_few_resident(launch, arch, least)) is None, problem
    minimum = op.minimum_bytes_of(args, outputs) / 32
    # Less than the minimum has not been counted, or is no minimum; the smallest difference is rounding.
    assert minimum - 1 <= sectors <= case.sector_bound * minimum, "\n".join(
        each.table() for each in session.launches
    )
