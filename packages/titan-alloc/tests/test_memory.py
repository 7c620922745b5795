"""Memory statistics against allocations of a known size."""

import pytest
import torch

from titan_alloc import memory

CPU = torch.device("cpu")
MIB = 2**20


def test_cpu_counts_an_allocation_while_it_lives():
    before = memory.memory_stats(CPU)
    block = torch.ones(64 * MIB, dtype=torch.uint8)
    during = memory.memory_stats(CPU)
    assert during.allocated - before.allocated > 48 * MIB
    assert during.reserved == during.allocated
    assert block.sum().item() == 64 * MIB


def test_cpu_peak_outlives_the_allocation_until_it_is_reset():
    if not memory.reset_peak(CPU):
        pytest.skip("this kernel does not let a process reset its peak memory")
    base = memory.memory_stats(CPU)
    block = torch.ones(128 * MIB, dtype=torch.uint8)
    del block
    after = memory.memory_stats(CPU)
    assert after.peak_allocated - base.peak_allocated > 96 * MIB
    assert after.allocated - base.allocated < 64 * MIB
    memory.reset_peak(CPU)
    assert memory.memory_stats(CPU).peak_allocated < after.peak_allocated - 64 * MIB


def test_cpu_sizes_are_ordered():
    stats = memory.memory_stats(CPU)
    assert 0 < stats.allocated <= stats.peak_allocated < stats.total
    assert stats.peak_reserved == stats.peak_allocated


def test_peak_without_proc_counts_from_the_start(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "_PROC_STATUS", tmp_path / "absent")
    monkeypatch.setattr(memory, "_PROC_CLEAR_REFS", tmp_path / "absent" / "clear_refs")
    assert memory.reset_peak(CPU) is False
    stats = memory.memory_stats(CPU)
    assert stats.peak_allocated >= stats.allocated > 10 * MIB


@pytest.mark.parametrize("function", [memory.memory_stats, memory.reset_peak])
def test_other_devices_are_refused_by_name(function):
    with pytest.raises(ValueError, match=r"meta.*CUDA device or the CPU"):
        function(torch.device("meta"))


@pytest.mark.gpu
def test_cuda_peak_outlives_the_allocation_until_it_is_reset():
    device = torch.device("cuda")
    memory.reset_peak(device)
    base = memory.memory_stats(device).allocated
    block = torch.ones(64 * MIB, dtype=torch.uint8, device=device)
    del block
    assert memory.memory_stats(device).peak_allocated - base >= 64 * MIB
    memory.reset_peak(device)
    assert memory.memory_stats(device).peak_allocated - base < 64 * MIB
