"""kill -9 at any moment: the newest checkpoint stays loadable and the older ones untouched."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from titan_parallel.checkpoint import CheckpointManager, verify
from titan_parallel.errors import CheckpointError

KILLS = 15
FAILED = 3  # exit code of a rank whose save failed because a peer was killed


def _fill(model: torch.nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Every value says which step it belongs to."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(step)
            for key, value in optimizer.state[parameter].items():
                value.fill_(step + {"step": 0.25, "exp_avg": 0.5, "exp_avg_sq": 0.75}[key])


def _values(tensors: dict[str, torch.Tensor]) -> set[float]:
    return {float(value) for tensor in tensors.values() for value in tensor.unique()}


def _build(lab, mesh, hidden: int = 400):
    model = lab.model(mesh=mesh, hidden=hidden)
    optimizer = lab.optimizer(model)
    lab.train(model, optimizer, 1)
    model.seen.zero_()
    return model, optimizer


def _loaded_values(lab, path: Path, hidden: int = 400) -> set[float]:
    model, optimizer = _build(lab, None, hidden)
    CheckpointManager(path.parent, keep=1, read_only=True).load(path, model=model, optimizer=optimizer)
    return _values(lab.state(model, optimizer)) - {0.0}


def _expected(step: int) -> set[float]:
    return {step, step + 0.25, step + 0.5, step + 0.75}


def _digests(folder: Path) -> dict[str, str]:
    files = (path for path in folder.glob("step-*/*") if path.is_file())
    return {str(path): hashlib.blake2b(path.read_bytes()).hexdigest() for path in files}


def _save_for_ever(lab, folder: Path, rank: int, world: int, store: Path, ready: int) -> None:
    mesh = None
    if world > 1:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", store=dist.FileStore(str(store), world), rank=rank, world_size=world)
        mesh = (1, world)
    model, optimizer = _build(lab, mesh)
    manager = CheckpointManager(folder, keep=3)
    step = 0
    if manager.latest() is not None:
        step = manager.load(manager.latest(), model=model, optimizer=optimizer).step
    os.write(ready, b"r")
    while True:
        step += 1
        _fill(model, optimizer, step)
        manager.save(step, model=model, optimizer=optimizer, trainer={}, per_rank={})


def _start(lab, folder: Path, world: int, store: Path) -> list[int]:
    ready, tell = os.pipe()
    pids = []
    for rank in range(world):
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                _save_for_ever(lab, folder, rank, world, store, tell)
            except CheckpointError:
                code = FAILED
            finally:
                os._exit(code)
        pids.append(pid)
    for _ in range(world):
        assert os.read(ready, 1) == b"r"
    os.close(ready)
    os.close(tell)
    return pids


def _wait(pids: list[int], seconds: float) -> dict[int, int]:
    """Exit statuses; ranks that are still there after ``seconds`` hang, which fails the test."""
    statuses: dict[int, int] = {}
    deadline = time.monotonic() + seconds
    while len(statuses) < len(pids) and time.monotonic() < deadline:
        for pid in set(pids) - set(statuses):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                statuses[pid] = status
        time.sleep(0.005)
    for pid in set(pids) - set(statuses):
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    return statuses


def _newest(folder: Path) -> int:
    return max((int(path.name.removeprefix("step-")) for path in folder.glob("step-*")), default=0)


def _wait_for_saves(folder: Path, count: int) -> None:
    """Return once ``count`` more checkpoints are there, so that a busy machine makes progress too."""
    wanted, deadline = _newest(folder) + count, time.monotonic() + 60
    while _newest(folder) < wanted:
        assert time.monotonic() < deadline, "no checkpoint gets finished"
        time.sleep(0.005)


@pytest.mark.slow
def test_killed_ranks_and_groups_leave_the_latest_loadable(lab, folder, tmp_path):
    rng = random.Random(7)
    interrupted, last = 0, 0
    for number in range(KILLS):
        world = (1, 2, 2)[number % 3]
        pids = _start(lab, folder, world, tmp_path / f"store-{number}")
        before = _digests(folder)
        _wait_for_saves(folder, rng.randrange(3))
        time.sleep(rng.uniform(0.0, 0.2))
        victims = pids if number % 3 != 2 else [rng.choice(pids)]
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        statuses = _wait(pids, 20)
        assert len(statuses) == world, "a survivor hangs"
        survivors = [statuses[pid] for pid in pids if pid not in victims]
        assert [os.waitstatus_to_exitcode(status) for status in survivors] == [FAILED] * len(survivors)

        interrupted += len(list(folder.glob(".step-*")))
        with CheckpointManager(folder, keep=3) as manager:
            steps = manager.steps()
        assert not list(folder.glob(".step-*"))
        if not steps:  # killed during the very first save
            assert last == 0
            continue
        assert steps == list(range(steps[0], steps[-1] + 1))
        assert steps[-1] >= last
        last = steps[-1]
        assert _loaded_values(lab, folder / f"step-{last:08d}") == _expected(last)
        for step in steps[:-1]:
            assert verify(folder / f"step-{step:08d}") == []
        after = _digests(folder)
        assert all(after[name] == digest for name, digest in before.items() if name in after)
    assert last > KILLS // 2
    assert interrupted >= KILLS // 4, "the kills missed the saves: this test proves nothing"


def _die_at(event_number: int, folder: Path) -> None:
    """Kill this process at its n-th file system call in ``folder``: open, rename, mkdir, remove ..."""
    count = 0

    def hook(event: str, args: tuple[object, ...]) -> None:
        nonlocal count
        if event.split(".")[0] in ("open", "os", "shutil") and any(str(folder) in str(arg) for arg in args):
            count += 1
            if count == event_number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def _save_twice(lab, folder: Path, event_number: int) -> None:
    """Replace step 2, then save step 3, which sends step 1 into retirement."""
    with contextlib.suppress(BaseException):
        model, optimizer = _build(lab, None, 7)
        _die_at(event_number, folder)
        with CheckpointManager(folder, keep=2) as manager:
            for step in (2, 3):
                _fill(model, optimizer, step)
                manager.save(step, model=model, optimizer=optimizer, trainer={}, per_rank={})
        os._exit(0)
    os._exit(1)


@pytest.mark.slow
def test_killed_at_every_single_file_system_call(lab, folder, tmp_path):
    model, optimizer = _build(lab, None, 7)
    template = tmp_path / "template"
    with CheckpointManager(template, keep=2) as manager:
        for step in (1, 2):
            _fill(model, optimizer, step)
            manager.save(step, model=model, optimizer=optimizer, trainer={}, per_rank={})
    outcomes = []
    for event_number in range(1, 500):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(template, folder)
        pid = os.fork()
        if pid == 0:
            _save_twice(lab, folder, event_number)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with CheckpointManager(folder, keep=2) as manager:
            steps = manager.steps()
        outcomes.append((code, tuple(steps)))
        assert _loaded_values(lab, folder / f"step-{steps[-1]:08d}", 7) == _expected(steps[-1])
        assert [verify(folder / f"step-{step:08d}") for step in steps] == [[]] * len(steps)
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert outcomes[-1] == (0, (2, 3))
    assert len(outcomes) > 30
    # Every state on the way: before and while replacing step 2, after publishing step 3, after retention.
    assert {steps for _, steps in outcomes} == {(1, 2), (1, 2, 3), (2, 3)}
