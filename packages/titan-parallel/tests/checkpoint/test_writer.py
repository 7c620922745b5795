from __future__ import annotations

import os
import resource
import shutil
import time
from collections import namedtuple
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from titan_parallel.checkpoint import CheckpointManager, collective, verify
from titan_parallel.errors import CheckpointWriteError
from titan_parallel.testing import run_ranks


def _tree(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and modification time of every file but the lock."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(p.relative_to(folder)): (p.stat().st_size, p.stat().st_mtime_ns) for p in files}


def _barrier() -> None:
    if dist.is_initialized():
        dist.barrier()


def _save_failing(manager, step: int, model) -> str:
    with pytest.raises(CheckpointWriteError) as caught:
        manager.save(step, model=model, optimizer=None, trainer={}, per_rank={})
    return str(caught.value)


@pytest.mark.parametrize("mesh", [None, (1, 2)])
def test_full_disk_is_noticed_before_it_is_full(lab, small_disk, mesh):
    """The first checkpoint fits into the mebibyte; one with 40,000 hidden units needs four."""

    def save() -> str:
        lab.trained(small_disk, mesh=mesh)
        before = _tree(small_disk)
        _barrier()  # opening the folder writes to it for a moment
        with CheckpointManager(small_disk, keep=2) as manager:
            text = _save_failing(manager, 9, lab.model(hidden=40_000, mesh=mesh))
            _barrier()
            assert _tree(small_disk) == before
            assert manager.steps() == [3]
        return text

    texts = {save()} if mesh is None else set(run_ranks(2, save))
    assert len(texts) == 1
    text = texts.pop()
    assert str(small_disk / "step-00000009") in text
    assert "the disk is too full (4.2 MB needed, 0." in text
    assert "earlier checkpoints are untouched" in text
    assert sorted(path.name for path in small_disk.iterdir()) == [".lock", "step-00000003"]


@pytest.mark.parametrize("mesh", [None, (1, 2)])
def test_disk_that_fills_up_while_writing(lab, small_disk, mesh, monkeypatch):
    """Another job takes the space after the check: the check is shown a larger disk."""
    Usage = namedtuple("Usage", "total used free")
    real = shutil.disk_usage

    def save() -> str:
        lab.trained(small_disk, mesh=mesh)
        before = _tree(small_disk)
        _barrier()  # opening the folder writes to it for a moment
        calls = iter([Usage(10**9, 0, 10**9)] if collective.rank() == 0 else [])
        monkeypatch.setattr(shutil, "disk_usage", lambda path: next(calls, None) or real(path))
        with CheckpointManager(small_disk, keep=2) as manager:
            text = _save_failing(manager, 9, lab.model(hidden=40_000, mesh=mesh))
            _barrier()  # rank 0 cleans up
            assert _tree(small_disk) == before
            assert not list(small_disk.glob(".step*"))
            _barrier()
            monkeypatch.undo()
            manager.save(10, model=lab.model(mesh=mesh), optimizer=None, trainer={}, per_rank={})
            assert manager.steps() == [3, 10]
        return text

    texts = {save()} if mesh is None else set(run_ranks(2, save))
    assert len(texts) == 1
    text = texts.pop()
    assert "No space left on device" in text
    assert "(4.2 MB needed, " in text
    assert " 0." in text.partition("needed,")[2]
    assert verify(small_disk / "step-00000010") == []


@pytest.mark.parametrize("failing", [0, 1, 3])
def test_one_rank_that_cannot_write_fails_all_alike(lab, folder, failing):
    """A file size limit stands for a quota; all ranks raise at once and the next save works."""

    def save() -> tuple[str, float]:
        mesh = (1, 4)
        lab.trained(folder, mesh=mesh)
        model = lab.model(hidden=500, mesh=mesh)
        before = _tree(folder)
        dist.barrier()  # opening the folder writes to it for a moment
        with CheckpointManager(folder, keep=3) as manager:
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            if dist.get_rank() == failing:
                resource.setrlimit(resource.RLIMIT_FSIZE, (1500, hard))
            start = time.monotonic()
            text = _save_failing(manager, 9, model)
            took = time.monotonic() - start
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            dist.barrier()
            assert _tree(folder) == before
            dist.barrier()
            manager.save(10, model=model, optimizer=None, trainer={}, per_rank={})
        return text, took

    results = run_ranks(4, save)
    assert len({text for text, _ in results}) == 1
    text = results[0][0]
    assert str(folder / "step-00000009") in text
    assert "File too large" in text
    assert max(took for _, took in results) < 5
    assert verify(folder / "step-00000010") == []


def test_folder_that_disappears(lab, folder):
    def save() -> str:
        with CheckpointManager(folder, keep=3) as manager:
            dist.barrier()
            if dist.get_rank() == 0:
                shutil.rmtree(folder)
            dist.barrier()
            return _save_failing(manager, 1, lab.model(mesh=(1, 2)))

    first, second = run_ranks(2, save)
    assert first == second
    assert f"No such file or directory: {folder}" in first


def test_rank_that_dies_before_the_save_does_not_hang_the_others(lab, folder):
    """The survivor learns it from the closed connection, not from a timeout."""
    result = folder.parent / "result"

    def save() -> None:
        model = lab.model(mesh=(1, 2))
        manager = CheckpointManager(folder, keep=3)
        dist.barrier()
        if dist.get_rank() == 1:
            os._exit(0)
        start = time.monotonic()
        with pytest.raises(CheckpointWriteError, match="another rank ended or stopped answering"):
            manager.save(1, model=model, optimizer=None, trainer={}, per_rank={})
        result.write_text(str(time.monotonic() - start))
        os._exit(0)

    with pytest.raises(FileNotFoundError):  # the ranks leave without a result for the harness
        run_ranks(2, save)
    assert float(result.read_text()) < 10
    assert CheckpointManager(folder, keep=3).steps() == []


def test_failures_of_different_ranks_are_told_apart():
    def fail() -> str:
        def raise_own() -> None:
            raise OSError(28, "No space left on device", f"/file-{dist.get_rank()}")

        with pytest.raises(CheckpointWriteError) as caught:
            collective.gather(raise_own, doing="saving", error=CheckpointWriteError)
        with pytest.raises(CheckpointWriteError, match="rank 1 only"):
            collective.together(_fail_on_rank_1, doing="saving", error=CheckpointWriteError)
        return str(caught.value)

    def _fail_on_rank_1() -> None:
        if dist.get_rank() == 1:
            raise CheckpointWriteError("rank 1 only")

    assert set(run_ranks(2, fail)) == {
        "rank 0: saving: No space left on device: /file-0; rank 1: saving: No space left on device: /file-1"
    }


def _save_plainly(state: dict, path: Path) -> float:
    """Seconds that torch.save takes onto stable storage, with nothing hashed or agreed."""
    start = time.monotonic()
    with path.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    return time.monotonic() - start


def test_saving_a_model_of_six_million_parameters_takes_under_half_a_second(folder, tmp_path):
    """Parameters and AdamW state, 72 MB; where the machine itself is slow, six plain saves' time."""
    blocks = [torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.Linear(1024, 256)) for _ in range(8)]
    model = torch.nn.Sequential(torch.nn.Embedding(4096, 256), *blocks, torch.nn.Linear(256, 4096))
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    times, plain = [], []
    with CheckpointManager(folder, keep=1) as manager:
        for step in range(4):
            plain.append(_save_plainly([model.state_dict(), optimizer.state_dict()], tmp_path / "plain"))
            start = time.monotonic()
            manager.save(step, model=model, optimizer=optimizer, trainer={}, per_rank={})
            times.append(time.monotonic() - start)
    assert min(times) < max(0.5, 6 * min(plain)), (times, plain)
