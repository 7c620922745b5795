"""Counters against numbers worked out by hand."""

import dataclasses
import json

import pytest
import torch

from titan_kernels.emulator import Counters


def at(report, counting, mark):
    """The counters of a marked line."""
    line = counting.line(f"COUNT {mark}")
    return next((each.counters for each in report.lines if each.line == line), Counters())


# dtype, bytes of an access, stride, offset -> sectors of each request, ideal sectors
GLOBAL = [
    ("2", torch.float16, 1, 0, 2, 2),
    ("4", torch.float32, 1, 0, 4, 4),
    ("8", torch.float32, 2, 0, 8, 8),
    ("16", torch.float16, 8, 0, 16, 16),
    ("4", torch.float32, 1, 1, 5, 4),  # across a sector boundary
    ("4", torch.float32, 2, 0, 8, 4),  # every second word
    ("4", torch.float32, 8, 0, 32, 4),  # a sector per lane
    ("4", torch.float32, 9, 0, 32, 4),
    ("2", torch.float16, 16, 0, 32, 2),
    ("8", torch.float32, 16, 0, 32, 8),
]


@pytest.mark.parametrize(("kernel", "dtype", "stride", "offset", "sectors", "ideal"), GLOBAL)
def test_sectors(counting, kernel, dtype, stride, offset, sectors, ideal):
    x = torch.zeros(128 * stride + 16, dtype=dtype)
    report = counting(
        f"copy_{kernel}", [x, torch.zeros_like(x), stride, offset], grid=2, block=64, count=True
    )
    load, store = at(report, counting, "copy_load"), at(report, counting, "copy_store")
    assert (load.global_load_requests, store.global_store_requests) == (4, 4)  # 2 blocks of 2 warps
    assert (load.global_load_sectors, store.global_store_sectors) == (4 * sectors, 4 * sectors)
    assert (load.global_load_ideal_sectors, store.global_store_ideal_sectors) == (4 * ideal, 4 * ideal)
    assert load.global_load_bytes == store.global_store_bytes == 128 * int(kernel)
    assert report.counters == load + store


def test_broadcast_load_is_one_sector(counting):
    x = torch.zeros(32)
    report = counting("copy_4", [x, torch.zeros(32 * 32), 0, 0], count=True, check=False)
    load = at(report, counting, "copy_load")
    assert (load.global_load_sectors, load.global_load_ideal_sectors, load.global_load_bytes) == (1, 1, 128)


def test_sectors_loaded_by_several_blocks_are_unique_once(counting):
    """Compulsory traffic: 4 blocks read the same 256 bytes and write them."""
    x = torch.zeros(64)
    report = counting("divergent_loads", [torch.zeros(2048)], grid=4, count=True)
    assert report.unique_load_sectors < report.counters.global_load_sectors / 4 + 1
    report = counting("copy_4", [x, torch.zeros(64), 1, 0], grid=2, count=True)
    assert (report.unique_load_sectors, report.unique_store_sectors) == (8, 8)


# bytes of an access, stride in accesses -> wavefronts, ideal
SHARED = [
    ("4", 1, 1, 1),
    ("4", 2, 2, 1),
    ("4", 3, 1, 1),
    ("4", 32, 32, 1),
    ("4", 33, 1, 1),
    ("4", 16, 16, 1),
    ("2", 1, 1, 1),  # pairs of lanes share words
    ("2", 2, 1, 1),
    ("2", 64, 32, 1),
    ("8", 1, 2, 2),
    ("8", 2, 4, 2),
    ("8", 16, 32, 2),
    ("8", 17, 2, 2),
    ("16", 1, 4, 4),
    ("16", 2, 8, 4),
    ("16", 8, 32, 4),
    ("16", 9, 4, 4),
]


@pytest.mark.parametrize(("kernel", "stride", "wavefronts", "ideal"), SHARED)
def test_wavefronts(counting, kernel, stride, wavefronts, ideal):
    shared = 32 * stride * int(kernel)
    report = counting(f"shared_{kernel}", [stride, 1], shared=shared, count=True)
    load, store = at(report, counting, "shared_load"), at(report, counting, "shared_store")
    assert (load.shared_load_requests, store.shared_store_requests) == (1, 1)
    assert (load.shared_load_wavefronts, store.shared_store_wavefronts) == (wavefronts, wavefronts)
    assert (load.shared_load_ideal_wavefronts, store.shared_store_ideal_wavefronts) == (ideal, ideal)
    assert report.counters.bank_conflicts == 2 * (wavefronts - ideal)
    assert report.shared_bytes == shared


@pytest.mark.parametrize(("stride", "conflicts"), [(32, 16 * 31), (33, 0)])
def test_stride_of_the_banks(counting, stride, conflicts):
    """The classic: 16 requests of stride 32 lose 496 wavefronts, of stride 33 none."""
    report = counting("shared_4", [stride, 16], shared=32 * stride * 4, count=True)
    load = at(report, counting, "shared_load")
    assert load.shared_load_wavefronts - load.shared_load_ideal_wavefronts == conflicts


def test_lanes_that_read_one_word_share_it(counting):
    report = counting("broadcast", [], count=True)
    assert at(report, counting, "broadcast").shared_load_wavefronts == 1
    assert at(report, counting, "halves").shared_load_wavefronts == 1


def test_requests_of_diverged_lanes(counting):
    report = counting("divergent_loads", [torch.zeros(2048)], count=True)
    even, trips, after = (at(report, counting, mark) for mark in ("even_lanes", "trips", "together_again"))
    assert (even.global_load_requests, even.global_load_sectors, even.global_load_bytes) == (1, 4, 64)
    assert even.global_load_ideal_sectors == 2
    # Trip i has the lanes above i: 31 requests, 31 + 30 + ... + 1 accesses.
    assert (trips.global_load_requests, trips.global_load_bytes) == (31, 4 * 31 * 32 // 2)
    assert trips.global_load_sectors == sum(4 - (i + 1) // 8 for i in range(31))
    assert (after.global_load_requests, after.global_load_sectors) == (1, 4)


def test_instructions(counting):
    report = counting("instruction_mix", [torch.zeros(4, dtype=torch.int32)], grid=2, block=64, count=True)
    counted = {mark: at(report, counting, mark) for mark in
               ("barrier", "shuffle", "vote", "shared_atomic", "global_atomic", "special")}  # fmt: skip
    assert counted["barrier"] == Counters(barriers=2)
    assert counted["shuffle"] == Counters(shuffles=2 * 2 * 3)
    assert counted["vote"] == Counters(votes=4)
    assert counted["shared_atomic"] == Counters(shared_atomic_requests=2, shared_atomics=16)
    assert counted["global_atomic"] == Counters(global_atomic_requests=4, global_atomics=128)
    assert counted["special"] == Counters(special_functions=2 * 128)


@pytest.mark.parametrize(("row", "conflicts"), [(64, 28), (72, 0)])
def test_matrix_instructions(counting, row, conflicts):
    """Rows of 128 bytes begin in one bank, so a phase of eight takes eight wavefronts."""
    report = counting(f"products_{row}", [], count=True)
    load = at(report, counting, "ldmatrix")
    assert (load.shared_load_requests, load.shared_load_ideal_wavefronts) == (1, 4)
    assert load.shared_load_wavefronts - 4 == conflicts
    assert at(report, counting, "m16n8k8") == Counters(mma_m16n8k8=5, mma_flops=5 * 2 * 16 * 8 * 8)
    assert at(report, counting, "m8n8k4") == Counters(mma_m8n8k4=1, mma_flops=4 * 2 * 8 * 8 * 4)
    assert at(report, counting, "m8n8k16") == Counters(mma_m8n8k16_s8=1, mma_flops=2 * 8 * 8 * 16)


def test_sampled_blocks(counting):
    x = torch.zeros(64 * 100)
    report = counting("copy_4", [x, torch.zeros_like(x), 1, 0], grid=100, block=64, count=True, blocks=5)
    assert report.blocks_run == 5
    assert report.counters.global_load_requests == 10
    y = torch.zeros_like(x)
    report = counting("copy_4", [x + 1, y, 1, 0], grid=100, block=64, blocks=[3, 99])
    assert y.view(100, 64)[:, 0].nonzero().flatten().tolist() == [3, 99]


def test_same_counts_for_every_seed_and_without_checks(counting):
    args = [torch.zeros(4, dtype=torch.int32)]
    reports = [
        counting("instruction_mix", args, grid=3, block=64, count=True, seed=seed, check=check)
        for seed, check in ((0, True), (1, True), (2, False))
    ]
    assert reports[0] == reports[1] == reports[2]


def test_report_as_json_and_as_table(counting):
    report = counting("instruction_mix", [torch.zeros(4, dtype=torch.int32)], grid=2, block=64, count=True)
    as_json = json.loads(report.to_json())
    assert as_json["kernel"] == "instruction_mix"
    assert as_json["total"] == dataclasses.asdict(report.counters)
    assert sum(line["counters"]["special_functions"] for line in as_json["lines"]) == 256
    table = report.table().splitlines()
    assert table[0] == "instruction_mix: grid 2x1x1, block 64x1x1"
    assert "special" in table[1]
    assert "wavefronts" in table[1]
    assert "m16n8k8" not in table[1]
    assert any(
        f"counting.cu:{counting.line('COUNT special')}" in row and row.endswith(" 256") for row in table
    )
    assert table[-2].startswith("total")


def test_table_ends_with_the_distinct_sectors_of_the_launch(counting):
    x, y = torch.zeros(64), torch.zeros(32)
    report = counting("copy_4", [x, y, 1, 0], count=True)
    assert report.table().splitlines()[-1] == "distinct sectors: 4 loaded, 4 stored"


def test_counts_only_on_request(counting):
    report = counting("instruction_mix", [torch.zeros(4, dtype=torch.int32)], grid=2, block=64)
    assert report.lines == ()
    assert report.counters == Counters()
