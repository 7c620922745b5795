from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from titan_parallel.checkpoint import CheckpointManager, layout
from titan_parallel.errors import CheckpointWriteError
from titan_parallel.testing import run_ranks


def test_second_job_on_a_folder_is_refused(folder):
    with CheckpointManager(folder, keep=1):
        parent = os.getpid()

        def second() -> str:
            with pytest.raises(CheckpointWriteError) as caught:
                CheckpointManager(folder, keep=1)
            return str(caught.value)

        first, other = run_ranks(2, second)
        assert first == other
        assert f"is in use by another job (process {parent} on" in first
    CheckpointManager(folder, keep=1).close()


def test_second_manager_in_the_same_process_is_refused_until_the_first_is_gone(folder, monkeypatch):
    monkeypatch.setattr(layout, "_LOCK_PATIENCE_S", 0.1)
    manager = CheckpointManager(folder, keep=1)
    with pytest.raises(CheckpointWriteError, match="in use"):
        CheckpointManager(folder, keep=1)
    del manager
    CheckpointManager(folder, keep=1)


@contextlib.contextmanager
def as_a_plain_user():
    """Permissions don't stop root."""
    own = os.geteuid()
    if own == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(own)


def test_a_folder_that_became_read_only_is_refused_at_once():
    def open_it(folder: Path) -> str:
        with as_a_plain_user(), pytest.raises(CheckpointWriteError) as caught:
            CheckpointManager(folder, keep=1)
        return str(caught.value)

    with tempfile.TemporaryDirectory() as parent:  # pytest's own folders are closed to other users
        Path(parent).chmod(0o755)
        folder = Path(parent) / "checkpoints"
        folder.mkdir()
        (folder / ".lock").touch()
        (folder / ".lock").chmod(0o666)
        folder.chmod(0o555)
        first, other = run_ranks(2, open_it, folder)
        assert first == other
        assert f"checkpoint folder ({folder}) must be writable: Permission denied" in first
        folder.chmod(0o755)
        CheckpointManager(folder, keep=1).close()


def test_a_rank_that_cannot_write_is_everybodys_error_at_once(folder):
    def open_it() -> str:
        if dist.get_rank() == 1:  # its node doesn't share the folder
            layout.probe_path = lambda folder: folder / "elsewhere" / "probe"
        with pytest.raises(CheckpointWriteError) as caught:
            CheckpointManager(folder, keep=1)
        return str(caught.value)

    first, other = run_ranks(2, open_it)
    assert first == other
    assert "No such file or directory" in first
    assert "which all nodes share" in first
    assert [path.name for path in folder.iterdir()] == [".lock"]


def test_trying_to_write_leaves_nothing(folder):
    folder.mkdir()
    layout.probe_path(folder).mkdir()  # of a job that was killed there
    (layout.probe_path(folder) / "rank-0").touch()
    run_ranks(2, lambda: CheckpointManager(folder, keep=1).close())
    assert [path.name for path in folder.iterdir()] == [".lock"]


def test_a_killed_job_frees_the_folder_though_its_worker_lives(folder):
    """A loader worker forked by a trainer inherits its files; it must not keep the lock."""
    ready, tell = os.pipe()
    trainer = os.fork()
    if trainer == 0:
        manager = CheckpointManager(folder, keep=1)
        worker = os.fork()
        if worker:
            os.write(tell, str(worker).encode())
        time.sleep(60)
        os._exit(int(manager.steps() != []))
    worker = int(os.read(ready, 20))
    try:
        os.kill(trainer, signal.SIGKILL)
        os.waitpid(trainer, 0)
        os.kill(worker, 0)
        CheckpointManager(folder, keep=1).close()
    finally:
        os.kill(worker, signal.SIGKILL)


def test_leftovers_are_removed_and_nothing_else(lab, folder):
    lab.trained(folder)
    mine = [".step-00000004.writing", ".step-00000001.deleting", ".step-00000003.replaced"]
    foreign = [".step-4.writing", "step-00000004.writing", ".cache", "notes", ".step-00000004.writing.bak"]
    for name in mine + foreign:
        (folder / name).mkdir()
        (folder / name / "file").touch()
    CheckpointManager(folder, keep=1)
    assert sorted(p.name for p in folder.iterdir()) == sorted([*foreign, ".lock", "step-00000003"])


def test_a_replaced_checkpoint_returns_when_its_successor_was_never_published(lab, folder):
    lab.trained(folder)
    (folder / "step-00000003").rename(folder / ".step-00000003.replaced")
    manager = CheckpointManager(folder, keep=1)
    assert manager.steps() == [3]
    manager.load(manager.latest(), model=lab.model())


def test_retention_spares_what_a_load_is_reading(lab, folder):
    model = lab.model()
    manager = CheckpointManager(folder, keep=1)

    def save(step: int) -> None:
        manager.save(step, model=model, optimizer=None, trainer={}, per_rank={})

    save(1)
    with layout.reading(folder / "step-00000001"):
        thread = threading.Thread(target=save, args=(2,))
        thread.start()
        thread.join()
        assert manager.steps() == [1, 2]
    save(3)
    assert manager.steps() == [3]


def test_retention_deletes_only_after_publication(lab, folder, monkeypatch):
    model = lab.model()
    manager = CheckpointManager(folder, keep=1)
    manager.save(1, model=model, optimizer=None, trainer={}, per_rank={})

    def fail(*_: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(layout, "publish", fail)
    with pytest.raises(CheckpointWriteError, match="Input/output error; earlier checkpoints are untouched"):
        manager.save(2, model=model, optimizer=None, trainer={}, per_rank={})
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "step-00000001"]


def _open_on_a_read_only_disk(path: Path) -> None:
    with pytest.raises(CheckpointWriteError, match=r"must be writable: (Read-only|Permission)") as caught:
        CheckpointManager(path, keep=1)
    assert str(path) in str(caught.value)


def test_read_only_folder_loads_but_does_not_open(lab, folder):
    wanted = lab.trained(folder)
    if os.getuid() == 0:  # permissions don't stop root
        mount = ["mount", "--bind", "-o", "ro", str(folder), str(folder)]
        if subprocess.run(mount, capture_output=True, check=False).returncode:
            pytest.skip("this root can't mount")
    else:
        folder.chmod(0o555)
    try:
        run_ranks(2, _open_on_a_read_only_disk, folder)
        _open_on_a_read_only_disk(folder)
        model = lab.model(seed=1)
        manager = CheckpointManager(folder, keep=1, read_only=True)
        manager.load(manager.latest(), model=model)
        assert torch.equal(model.head.weight, wanted["model.head.weight"])
    finally:
        if os.getuid() == 0:
            subprocess.run(["umount", str(folder)], check=True)
        else:
            folder.chmod(0o755)


def test_a_path_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointWriteError, match="must be writable: Not a directory"):
        CheckpointManager(tmp_path / "file" / "checkpoints", keep=1)
