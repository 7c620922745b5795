"""Run a function on several ranks of a gloo process group, in about half a second.

The parent imports torch once; ranks are forks of it.  For tests on CPU only: never fork after CUDA
has been initialised.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore  # torch.distributed does not export their types

from titan_parallel.errors import RankError

__all__ = ["run_ranks"]


def run_ranks(world_size: int, fn: Callable[..., Any], *args: Any, timeout_s: float = 120.0) -> list[Any]:
    """Call ``fn(*args)`` on every rank of a new gloo group and return the results by rank.

    ``fn`` and ``args`` are inherited by fork, so closures work; results travel by pickle.

    Args:
        world_size: number of ranks.
        fn: function to call; ``torch.distributed`` is initialised when it runs.
        args: its arguments.
        timeout_s: seconds until all ranks are killed.

    Raises:
        RankError: a rank raised (its traceback is in the message), died or ran out of time.
    """
    with tempfile.TemporaryDirectory(prefix="titan-ranks-") as folder:
        pids = [_fork_rank(rank, world_size, Path(folder), fn, args) for rank in range(world_size)]
        statuses = _wait(pids, time.monotonic() + timeout_s)
        return _collect(Path(folder), statuses, timeout_s)


def _fork_rank(
    rank: int, world_size: int, folder: Path, fn: Callable[..., Any], args: tuple[Any, ...]
) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _child(rank, world_size, folder, fn, args)
    return pid


def _child(
    rank: int, world_size: int, folder: Path, fn: Callable[..., Any], args: tuple[Any, ...]
) -> NoReturn:
    code = 1
    try:
        torch.set_num_threads(1)
        os.environ.update(RANK=str(rank), WORLD_SIZE=str(world_size), LOCAL_RANK=str(rank))
        store = FileStore(str(folder / "store"), world_size)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size)
        result = fn(*args)
        dist.barrier()
        (folder / f"result-{rank}").write_bytes(pickle.dumps(result))
        code = 0
    except BaseException:
        (folder / f"error-{rank}").write_text(traceback.format_exc())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # gloo threads may abort the interpreter at a normal exit, after all work is done.
        os._exit(code)


def _wait(pids: list[int], deadline: float) -> list[int | None]:
    """Exit status by rank; None for a rank that had to be killed."""
    statuses: dict[int, int | None] = {}
    failed_at: float | None = None
    while len(statuses) < len(pids):
        for pid in pids:
            if pid not in statuses:
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    statuses[pid] = status
                    if status != 0 and failed_at is None:
                        failed_at = time.monotonic()
        # After one failure the others get a moment to report theirs, then they would only hang.
        if time.monotonic() > min(deadline, (failed_at or deadline) + 5.0):
            break
        time.sleep(0.005)
    for pid in pids:
        if pid not in statuses:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            statuses[pid] = None
    return [statuses[pid] for pid in pids]


def _collect(folder: Path, statuses: list[int | None], timeout_s: float) -> list[Any]:
    problems = []
    for rank, status in enumerate(statuses):
        error = folder / f"error-{rank}"
        if error.exists():
            problems.append(f"rank {rank} raised:\n{error.read_text()}")
        elif status is None:
            problems.append(f"rank {rank} did not end within {timeout_s:g} s (or after another rank failed)")
        elif status != 0:
            problems.append(f"rank {rank} died: {_describe(status)}")
    if problems:
        raise RankError("\n".join(problems))
    return [pickle.loads((folder / f"result-{rank}").read_bytes()) for rank in range(len(statuses))]  # noqa: S301 -- written by our own children


def _describe(status: int) -> str:
    if os.WIFSIGNALED(status):
        return f"signal {signal.Signals(os.WTERMSIG(status)).name}"
    return f"exit code {os.waitstatus_to_exitcode(status)}"
