"""Worker processes that read and tokenize ahead of the training.

PyTorch's DataLoader does the work; what is added: a dead worker is an error at once and in words, and
workers never outlive the training process.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import Any

from torch.utils.data import DataLoader, get_worker_info

from titan_pretrain.data.packing import TokenSequence
from titan_pretrain.data.sequences import Failure, SequenceDataset
from titan_pretrain.errors import DataError

__all__ = ["SequenceReader"]


class _WorkerDiedError(Exception):
    """Raised by the signal handler while the training process waits for a worker."""


class SequenceReader:
    """Reads a :class:`SequenceDataset`, in this process or through workers, in order.

    Args:
        dataset: What to read; its chunks are a worker's consecutive sequences.
        workers: Number of worker processes; 0 reads here.
        ahead: Chunks that all workers together prepare in advance.
    """

    def __init__(self, dataset: SequenceDataset, workers: int, ahead: int) -> None:
        self._processes: list[BaseProcess] = []
        self._ready: deque[TokenSequence | Failure] = deque()
        self._num_chunks = max(workers, 1)
        self._chunks: Iterator[list[TokenSequence | Failure]] | None
        self._chunks = self._start(dataset, workers, ahead) if workers else iter(dataset)

    def __next__(self) -> TokenSequence:
        """Return the next sequence.

        Raises:
            PretrainError: What went wrong in the worker, usually a DataError.
        """
        if not self._ready:
            self._fetch()
        item = self._ready.popleft()
        if isinstance(item, Failure):
            self.close()
            raise item.error from RuntimeError(f"in a data worker:\n{item.details}")
        return item

    def _fetch(self) -> None:
        """Take a chunk of each worker; the rank's sequences are the workers' in turn."""
        if self._chunks is None:
            raise DataError("the data loader is closed")
        try:
            with self._watching():
                chunks = [next(self._chunks) for _ in range(self._num_chunks)]
        except (_WorkerDiedError, RuntimeError, OSError, EOFError) as error:
            if not self._processes:
                raise
            raise self._death() from error
        self._ready.extend(item for turn in zip(*chunks, strict=True) for item in turn)

    def close(self) -> None:
        """Stop the workers."""
        # The DataLoader's own way takes five seconds if one of them is dead or stuck, and waits for
        # the last reference to its iterator, which an exception's traceback may hold.
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()
        self._processes = []
        self._ready.clear()
        self._chunks = None

    def _start(
        self, dataset: SequenceDataset, workers: int, ahead: int
    ) -> Iterator[list[TokenSequence | Failure]]:
        # Linux: fork is fast and shares the dataset's memory; nothing here touches a GPU.
        context = multiprocessing.get_context("fork" if sys.platform == "linux" else None)
        before = set(multiprocessing.active_children())
        with _keeping_child_signal(), _explaining_shared_memory(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # more workers than cores is the user's choice
            loader = DataLoader(
                dataset,
                batch_size=None,
                num_workers=workers,
                collate_fn=_unchanged,
                worker_init_fn=partial(_init_worker, os.getpid()),
                prefetch_factor=max(-(-ahead // workers), 2),
                multiprocessing_context=context,
            )
            chunks = iter(loader)
        self._processes = [child for child in multiprocessing.active_children() if child not in before]
        return chunks

    @contextmanager
    def _watching(self) -> Iterator[None]:
        """Turn a worker's death into an exception, also while blocked in reading half a message."""
        if not self._processes or threading.current_thread() is not threading.main_thread():
            yield
            return
        # What a handler raises inside a garbage collector's callback is lost.  (What is lost elsewhere,
        # in a __del__ say, the DataLoader notices within five seconds.)
        collects = gc.isenabled()
        gc.disable()
        previous = signal.signal(signal.SIGCHLD, self._on_child_signal)
        try:
            self._on_child_signal(0, None)  # it may have died since the last call
            yield
        finally:
            signal.signal(signal.SIGCHLD, previous)
            if collects:
                gc.enable()

    def _on_child_signal(self, _signal: int, _frame: FrameType | None) -> None:
        if not all(process.is_alive() for process in self._processes):
            raise _WorkerDiedError

    def _death(self) -> DataError:
        codes = sorted({str(process.exitcode) for process in self._processes if process.exitcode is not None})
        count = len(self._processes)
        self.close()
        return DataError(
            f"a data worker died (exit code {', '.join(codes) or 'unknown'}); -9 usually means that memory "
            f"ran out: lower data.workers ({count}), and resume"
        )


def _unchanged(item: Any) -> Any:
    return item


@contextmanager
def _keeping_child_signal() -> Iterator[None]:
    """Undo PyTorch's SIGCHLD handler, which raises a RuntimeError wherever the training happens to be."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.getsignal(signal.SIGCHLD)
    try:
        yield
    finally:
        signal.signal(signal.SIGCHLD, previous)


@contextmanager
def _explaining_shared_memory() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(
            f"data workers can't be started: {error.strerror or error}; /dev/shm may be full or missing: "
            "make room there, or set data.workers = 0"
        ) from None


def _init_worker(parent: int, _worker: int) -> None:
    """Prepare a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the group; the parent decides
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # not the trainer's handler, if it was inherited
    if hasattr(os, "setpgrp"):
        os.setpgrp()  # an elastic agent sends SIGTERM to the group; a rank still needs us, to save and stop
    threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()
    info = get_worker_info()
    if info is not None and isinstance(info.dataset, SequenceDataset):
        info.dataset.source.reopen()


def _exit_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
