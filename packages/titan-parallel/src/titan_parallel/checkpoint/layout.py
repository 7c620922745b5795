"""The folder that holds a run's checkpoints: names, the lock, leftovers of killed runs, retention.

::

    checkpoints/
        .lock                     held with flock by the job that writes here
        step-00000010/            complete: this name is given by a rename, last of all
        .step-00000020.writing/   being written
        .step-00000010.replaced/  superseded by another save of the same step
        .step-00000000.deleting/  past retention
        .probe/                   being tried whether all ranks can write here
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import socket
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from titan_parallel.errors import CheckpointWriteError

__all__ = [
    "FolderLock",
    "clean",
    "partial_path",
    "probe_path",
    "publish",
    "reading",
    "retain",
    "set_aside",
    "step_of",
    "step_path",
    "steps",
    "write_probe",
]

_STEP = re.compile(r"step-(\d{8,})")
_PROBE_BYTES = 4096
_LEFTOVER = re.compile(r"\.(step-\d{8,})\.(writing|replaced|deleting)")
# Orphans of a killed job (loader workers) and a dying process's memory teardown may hold the lock a moment.
_LOCK_PATIENCE_S = 3.0


def step_path(folder: Path, step: int) -> Path:
    """Where the complete checkpoint of ``step`` is."""
    return folder / f"step-{step:08d}"


def partial_path(folder: Path, step: int) -> Path:
    """Where the checkpoint of ``step`` is while it is being written."""
    return folder / f".step-{step:08d}.writing"


def step_of(path: Path) -> int | None:
    """The step that a checkpoint folder's name says, None for other names."""
    match = _STEP.fullmatch(path.name)
    return int(match[1]) if match else None


def steps(folder: Path) -> list[int]:
    """Steps of the published checkpoints in ``folder``, ascending."""
    if not folder.is_dir():
        return []
    found = (step_of(path) for path in folder.iterdir() if path.is_dir())
    return sorted(step for step in found if step is not None)


def sync(folder: Path) -> None:
    """Make renames and new names in ``folder`` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def publish(partial: Path, final: Path) -> None:
    """Give a complete checkpoint its name; an older one of the same step gives way."""
    sync(partial)
    replaced = final.with_name(f".{final.name}.replaced")
    if final.exists():
        final.rename(replaced)  # `clean` undoes this when the job dies before the next line
    try:
        partial.rename(final)
    except OSError:
        if replaced.exists():
            replaced.rename(final)
        raise
    sync(final.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def probe_path(folder: Path) -> Path:
    """A folder to try out writing in."""
    return folder / ".probe"


def write_probe(file: Path) -> None:
    """Write a small file as a save would.

    Raises:
        CheckpointWriteError: it can't be written.
    """
    try:
        with file.open("wb") as handle:
            handle.write(bytes(_PROBE_BYTES))
            handle.flush()
            os.fsync(handle.fileno())
    except OSError as error:
        raise unwritable(file.parent.parent, error) from error


def unwritable(folder: Path, error: OSError) -> CheckpointWriteError:
    """What to tell the user about a folder that this machine can't write to."""
    return CheckpointWriteError(
        f"checkpoint folder ({folder}) must be writable: {error.strerror}, on node {socket.gethostname()}; "
        "fix its permissions or choose another folder, which all nodes share"
    )


def clean(folder: Path) -> None:
    """Remove what killed jobs left behind; only the lock's owner may call this."""
    shutil.rmtree(probe_path(folder), ignore_errors=True)
    for path in folder.iterdir():
        match = _LEFTOVER.fullmatch(path.name)
        if match is None:
            continue
        if match[2] == "replaced" and not (folder / match[1]).exists():
            path.rename(folder / match[1])
        else:
            shutil.rmtree(path, ignore_errors=True)


def retain(folder: Path, keep: int, published: int) -> None:
    """Keep the checkpoint of step ``published`` and the newest before it, ``keep`` in all.

    Checkpoints of later steps stay too: they are another attempt's, or strangers.  So do those that
    a load is reading.
    """
    for step in [step for step in steps(folder) if step <= published][:-keep]:
        path = step_path(folder, step)
        with _reading_lock:
            if _being_read[path.resolve()]:
                continue
            # A kill in the middle of the deletion must not leave a half-empty checkpoint by that name.
            doomed = path.with_name(f".{path.name}.deleting")
            path.rename(doomed)
        shutil.rmtree(doomed, ignore_errors=True)


def set_aside(path: Path) -> Path:
    """Rename a damaged checkpoint, so that it is no longer taken for the newest one."""
    aside = path.with_name(f"{path.name}.damaged")
    shutil.rmtree(aside, ignore_errors=True)
    path.rename(aside)
    return aside


_being_read: Counter[Path] = Counter()
_reading_lock = threading.Lock()


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Keep retention in this process away from ``path``."""
    key = path.resolve()
    with _reading_lock:
        _being_read[key] += 1
    try:
        yield
    finally:
        with _reading_lock:
            _being_read[key] -= 1


_held: weakref.WeakSet[FolderLock] = weakref.WeakSet()


class FolderLock:
    """One writing job per folder; the kernel releases the lock when its process ends, however it ends.

    Raises:
        CheckpointWriteError: another job holds it, or the folder can't be written.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / ".lock"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise unwritable(folder, error) from error
        self._close = weakref.finalize(self, os.close, handle)
        try:
            self._acquire(handle, folder)
        except BaseException:
            self.release()
            raise
        _held.add(self)

    def _acquire(self, handle: int, folder: Path) -> None:
        deadline = time.monotonic() + _LOCK_PATIENCE_S
        while not self._try(handle):
            if time.monotonic() > deadline:
                raise CheckpointWriteError(
                    f"checkpoint folder ({folder}) is in use by another job ({self._owner()}): one job per "
                    "folder; end that job or choose another folder"
                )
            time.sleep(0.05)
        with contextlib.suppress(OSError):  # a full disk; the name is only for the other job's message
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)

    @staticmethod
    def _try(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            # Some network file systems have no locks; a run there goes unguarded rather than not at all.
            return error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS)
        return True

    def _owner(self) -> str:
        text = self._path.read_text(errors="replace").strip()
        return text or "its owner is unknown"

    @property
    def held(self) -> bool:
        """Whether this process holds the lock; a fork doesn't."""
        return self._close.alive

    def release(self) -> None:
        """Give the folder free; also happens when the object is collected."""
        self._close()


def _forget_inherited_locks() -> None:
    """Close the locks a fork inherited: loader workers that outlive a killed trainer would keep them."""
    for lock in list(_held):
        lock.release()


os.register_at_fork(after_in_child=_forget_inherited_locks)
