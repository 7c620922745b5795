"""The performance model on workloads whose times can be worked out by hand."""

import pytest
import torch

from titan_kernels import device, emulated, images, model, prefer
from titan_kernels.ops import relu2

RTX = device.lookup("NVIDIA TITAN RTX", (7, 5))
TITAN_V = device.lookup("NVIDIA TITAN V", (7, 0))


def work(**changes):
    base = {
        "blocks": 72 * 100,
        "warps": 8,
        "resident_blocks": 4,
        "occupancy": 1.0,
        "load_requests": 0.0,
        "dram_bytes": 0.0,
        "l2_bytes": 0.0,
        "shared_wavefronts": 0.0,
        "tensor_flops": 0.0,
        "instructions": {},
    }
    return model.Workload(**(base | changes))


def test_clock_is_that_of_the_data_sheet():
    assert model.clock_ghz(RTX) == pytest.approx(1.77, abs=0.01)
    assert model.clock_ghz(TITAN_V) == pytest.approx(1.35, abs=0.01)


def test_memory_bound():
    prediction = model.predict(work(dram_bytes=672e9 * 0.85 * 1e-3, l2_bytes=1.0), RTX)
    assert prediction.bound == "dram"
    assert prediction.terms["dram"] == pytest.approx(1000.0)
    assert prediction.microseconds == pytest.approx(1003.0, rel=1e-3)
    assert prediction.fraction_of_bound == pytest.approx(1000 / 1003, rel=1e-3)


def test_each_unit_can_bind():
    cycles = 72 * model.clock_ghz(RTX) * 1e3 * 500  # SM cycles in half a millisecond
    for bound, changes in {
        "shared": {"shared_wavefronts": cycles},
        "mufu": {"instructions": {"mufu": cycles / 2}},
        "fma": {"instructions": {"fma": cycles * 2}},
        "issue": {"instructions": {"control": cycles * 4}},
        "l2": {"l2_bytes": cycles * 20},
        "tensor": {"tensor_flops": 130.5e12 * 500e-6},
    }.items():
        prediction = model.predict(work(**changes), RTX)
        assert prediction.bound == bound
        assert prediction.terms[bound] == pytest.approx(500.0, rel=1e-6)


def test_a_last_wave_counts_in_full():
    full = model.predict(work(blocks=72 * 4, dram_bytes=1e8), RTX).microseconds - 3
    more = model.predict(work(blocks=72 * 4 + 1, dram_bytes=1e8), RTX).microseconds - 3
    assert more / full == pytest.approx(2 * 288 / 289)


def arithmetic(**changes):
    return model.predict(work(instructions={"fma": 1e9}, **changes), RTX).microseconds - 3


def test_few_warps_hide_no_latency():
    assert arithmetic(occupancy=0.125) == pytest.approx(2 * arithmetic(occupancy=0.5))


def test_few_blocks_leave_multiprocessors_without_warps():
    full = arithmetic(blocks=72 * 8, resident_blocks=8)
    assert arithmetic(blocks=72 * 2, resident_blocks=8) == pytest.approx(full)
    assert arithmetic(blocks=72, resident_blocks=8) == pytest.approx(2 * full)  # an eighth of the warps
    assert arithmetic(blocks=36, resident_blocks=8) == pytest.approx(4 * full)  # and half of the SMs


@pytest.mark.parametrize(
    ("unit", "changes"),
    [
        ("shared", {"shared_wavefronts": 1e9}),
        ("l2", {"l2_bytes": 1e9}),
        ("tensor", {"tensor_flops": 1e12}),
    ],
)
def test_few_blocks_use_few_multiprocessors(unit, changes):
    few, many = (model.predict(work(blocks=blocks, **changes), RTX).terms[unit] for blocks in (36, 72))
    assert few == pytest.approx(2 * many)


def read(megabytes, blocks):
    """Loads of 16 bytes per thread by blocks of 8 warps."""
    size = megabytes * 1e6
    return work(blocks=blocks, dram_bytes=size, l2_bytes=size, load_requests=size / 512)


def test_few_blocks_do_not_saturate_dram():
    times = {blocks: model.predict(read(64, blocks), RTX) for blocks in (1, 18, 72, 288)}
    assert times[288].bound == times[72].bound == "dram"
    assert times[1].bound == times[18].bound == "latency"
    # Little's law: 8 warps have 4096 bytes on their way in 500 cycles.
    bytes_per_us = 8 * 512 * model.clock_ghz(RTX) * 1e3 / 500
    assert times[1].microseconds == pytest.approx(64e6 / bytes_per_us + 3)
    assert times[1].microseconds - 3 == pytest.approx(18 * (times[18].microseconds - 3))
    assert times[1].microseconds > 30 * times[72].microseconds


def test_narrow_loads_need_more_warps():
    wide, narrow = (work(dram_bytes=1e8, load_requests=1e8 / size) for size in (512, 64))
    assert model.predict(wide, RTX).bound == "dram"
    assert model.predict(narrow, RTX).bound == "latency"


def test_other_cards_are_refused():
    a100 = device.lookup("NVIDIA A100-SXM4-80GB", (8, 0))
    with pytest.raises(ValueError, match="Volta"):
        model.predict(work(), a100)


def test_workload_of_a_launch():
    n = 1 << 16
    with emulated(count=True) as session, prefer("cuda"):
        relu2(torch.randn(n).half())
    (launch,) = session.launches
    info = images.info(launch.unit, "sm_75")[launch.kernel]
    made = model.workload(launch, info, (7, 5))
    assert made.dram_bytes == made.l2_bytes == 4 * n
    assert made.blocks == n // 8 // 256
    assert made.warps == 8
    assert made.occupancy == 1.0  # what an SM holds, however many blocks there are
    assert made.load_requests == n / 8 / 32
    assert made.tensor_flops == made.shared_wavefronts == 0
    # One load and one store of 16 bytes for each 8 elements, and what stands around them.
    assert made.instructions["global"] == pytest.approx(2 * n / 8 / 32)
    assert made.instructions["fma"] + made.instructions["alu"] > made.instructions["global"]


def test_sampled_blocks_stand_for_all():
    x = torch.randn(1 << 18).half()
    with emulated(count=True) as whole, prefer("cuda"):
        relu2(x)
    with emulated(count=True, blocks=4) as sampled, prefer("cuda"):
        relu2(x)
    info = images.info("glu", "sm_75")[whole.launches[0].kernel]
    one, other = (model.workload(each.launches[0], info, (7, 5)) for each in (whole, sampled))
    assert other.dram_bytes == pytest.approx(one.dram_bytes)
    assert other.instructions == pytest.approx(one.instructions)
