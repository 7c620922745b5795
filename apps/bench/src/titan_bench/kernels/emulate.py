"""Kernels without a GPU: every operator's figures, shape by shape, in processes of their own."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

import torch

from titan_bench.errors import BenchError
from titan_bench.kernels.figures import KernelRow, figures, verify
from titan_kernels.errors import CompileError, TitanKernelsError
from titan_kernels.registry import Op, ops

__all__ = ["Mistake", "default_jobs", "emulate"]

_MOST_JOBS = 4  # unless asked for: each may take 2 GB


@dataclass(frozen=True)
class Mistake:
    """Why an operator, or one of its shapes, has no figures."""

    op: str
    text: str

    def __str__(self) -> str:
        return f"{self.op}: {self.text}"


@dataclass(frozen=True)
class _Task:
    op: str
    case: str | None  # none: verify the operator
    dtype: torch.dtype


def default_jobs() -> int:
    """As many processes as there are processors for this one, and memory on any machine."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(usable, _MOST_JOBS)


def emulate(
    chosen: Sequence[Op], dtype: torch.dtype, jobs: int, tell: Callable[[str], None]
) -> Generator[KernelRow | Mistake, None, None]:
    """Verify each operator, then count its realistic cases and predict their times.

    What is wrong is left out.

    Args:
        chosen: Operators with CUDA kernels.
        dtype: The dtype of their arguments, where the case is for it.
        jobs: Processes; 1 runs all in this one.
        tell: Called with a line on the progress.

    Yields:
        Rows and mistakes, in order, each as soon as it is known.

    Raises:
        BenchError: Nothing can be emulated, for there is no compiler or too little memory.
    """
    tasks = [task for op in chosen for task in _tasks(op, dtype)]
    tell(f"{sum(task.case is not None for task in tasks)} shapes of {len(chosen)} operators")
    wrong: set[str] = set()
    with _mapping(min(jobs, len(tasks))) as run:
        for task, result in zip(tasks, run(tasks), strict=True):
            if result is None or task.op in wrong:
                continue
            if isinstance(result, Mistake) and task.case is None:
                wrong.add(task.op)
            yield result


def _tasks(op: Op, dtype: torch.dtype) -> Iterator[_Task]:
    cases = [case.label for case in op.cases() if case.realistic and dtype in case.dtypes]
    return (_Task(op.name, label, dtype) for label in ((None, *cases) if cases else ()))


def _do(task: _Task) -> KernelRow | Mistake | None:
    op = ops()[task.op]
    try:
        if task.case is None:
            verify(op, task.dtype)
            return None
        return figures(op, next(each for each in op.cases() if each.label == task.case), task.dtype)
    except CompileError as error:
        raise BenchError(str(error)) from error
    except (BenchError, TitanKernelsError) as error:
        return Mistake(op.name, str(error))


_Results = Iterator[KernelRow | Mistake | None]


@contextlib.contextmanager
def _mapping(jobs: int) -> Iterator[Callable[[Sequence[_Task]], _Results]]:
    """A function that does tasks, here or in other processes."""
    if jobs <= 1:
        yield lambda tasks: map(_do, tasks)
        return
    others = set(multiprocessing.active_children())
    # Not forked: PyTorch's threads do not survive that.
    pool = ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn"), _prepare)
    try:
        yield lambda tasks: pool.map(_do, tasks)
    except BrokenProcessPool:
        raise BenchError(
            f"--jobs ({jobs}): a process was killed, as happens without memory: run fewer of them"
        ) from None
    except BaseException:
        for process in set(multiprocessing.active_children()) - others:
            process.kill()  # its task may take many seconds more
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare() -> None:
    """In a new process: Ctrl-C is the parent's business, and no process outlives it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
