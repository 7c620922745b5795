"""titan/row.cuh and titan/reduce.cuh in the emulator: rows of any length at any address."""

import pytest
import torch

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}
THREADS, VECTORS = 64, 2


def add_one(rows, name, height, n, before, **options):
    """Runs the kernel on ``height`` rows that begin ``before`` elements after a 16-byte boundary."""
    dtype = DTYPES[name]
    memory = torch.arange(before + height * n + 16).remainder(64).to(dtype)
    result = torch.full_like(memory, -5)
    x, y = (each[before : before + height * n] for each in (memory, result))
    sums = torch.empty(height)
    report = rows(f"add_one_{name}", [x, y, sums, n], grid=height, block=THREADS, **options)
    assert torch.equal(y, x + 1)
    assert (result[:before] == -5).all()
    assert (result[before + height * n :] == -5).all()
    assert torch.equal(sums, x.view(height, n).float().sum(1))
    return report


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 3, 7, 8, 9, 31, 64, 129, 500])
@pytest.mark.parametrize("before", [0, 1, 5])
def test_any_length_at_any_address(rows, name, n, before):
    add_one(rows, name, 5, n, before, seed=n)


@pytest.mark.parametrize("name", DTYPES)
def test_aligned_rows_move_in_wide_accesses_only(rows, name):
    n = 512 * 2 // DTYPES[name].itemsize
    total = add_one(rows, name, 3, n // 2, 0, count=True).counters
    sectors = 3 * n // 2 * DTYPES[name].itemsize // 32
    assert total.global_load_sectors == total.global_load_ideal_sectors == sectors
    assert total.global_load_requests == 3 * (n // 2 * DTYPES[name].itemsize) // 512


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("n", [129, 253, 255])
def test_odd_rows_touch_each_sector_about_once(rows, name, n):
    report = add_one(rows, name, 8, n, 1, count=True)
    by_line = {each.line: each.counters for each in report.lines}
    load, store = by_line[rows.line("ROW load")], by_line[rows.line("ROW store")]
    # At most three pieces for each of the two edges of the eight rows.
    assert load.global_load_sectors <= report.unique_load_sectors + 8 * 2 * 3
    assert store.global_store_sectors <= report.unique_store_sectors + 8 * 2 * 3
