"""Worker processes: what they do when they or their parent die."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from titan_pretrain.data.source import ListSource
from titan_pretrain.errors import DataError


class Failing(ListSource):
    """Fails at one document in a way no source should."""

    def __getitem__(self, index):
        if index == 13:
            raise RuntimeError("a bug")
        return super().__getitem__(index)


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_an_unexpected_error_is_one_line(workers, make_loader, take):
    loader = make_loader(Failing("list", [f"t{i}" for i in range(20)]), workers=workers)
    with pytest.raises(DataError) as caught:
        take(loader, 200)
    assert caught.value.message == "reading data.dataset (list) failed: RuntimeError: a bug"
    assert 'raise RuntimeError("a bug")' in str(caught.value.__cause__)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_worker_is_an_error_at_once(number, make_loader, list_source, take):
    loader = make_loader(list_source(50), workers=2)
    next(loader)
    os.kill(multiprocessing.active_children()[0].pid, number)
    start = time.monotonic()
    with pytest.raises(
        DataError, match=rf"a data worker died \(exit code -{int(number)}\).*data.workers \(2\)"
    ):
        take(loader, 1000)
    assert time.monotonic() - start < 5
    assert not multiprocessing.active_children()


def test_a_worker_killed_while_the_training_waits_for_it(make_loader, take):
    """SIGSTOP makes sure that nothing is ready; the alarm kills while next() blocks."""
    loader = make_loader(ListSource("list", ["x" * 50_000] * 50), seq_len=40_000, workers=2)
    next(loader)
    children = multiprocessing.active_children()
    for child in children:
        os.kill(child.pid, signal.SIGSTOP)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(children[0].pid, signal.SIGKILL))
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(DataError, match="a data worker died"):
            take(loader, 1000)
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    assert not multiprocessing.active_children()


def test_a_death_does_not_interrupt_other_code(make_loader, list_source):
    """PyTorch's own handler would raise a RuntimeError in the middle of the training step."""
    before = signal.getsignal(signal.SIGCHLD)
    loader = make_loader(list_source(50), workers=2)
    next(loader)
    assert signal.getsignal(signal.SIGCHLD) == before
    os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)
    time.sleep(0.2)


def test_close_stops_the_workers(make_loader, list_source):
    loader = make_loader(list_source(50), workers=3)
    next(loader)
    assert len(multiprocessing.active_children()) == 3
    loader.close()
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(("dp_size", "wanted", "started"), [(1, 5, 4), (16, 2, 1), (16, 3, 3), (48, 4, 1)])
def test_workers_divide_the_shards(dp_size, wanted, started, make_loader, list_source):
    next(make_loader(list_source(50), dp_size=dp_size, workers=wanted))
    assert len(multiprocessing.active_children()) == started


ORPHANS = """
    import multiprocessing, os, signal, time
    from titan_pretrain.data import TokenLoader
    from titan_pretrain.data.source import ListSource
    from titan_pretrain.tokenizer import train_bpe

    class Stuck(ListSource):
        reads = 0
        def __getitem__(self, index):
            self.reads += 1  # a sequence takes some 600 documents
            time.sleep(3600 if self.reads > 1500 else 0)
            return super().__getitem__(index)

    texts = ["some words of text"] * 50
    loader = TokenLoader(Stuck("list", texts), train_bpe(texts, 300), seq_len=4096, micro_batch_size=1,
                         dp_rank=0, dp_size=1, seed=0, shuffle=True, document_mask=True, workers=2)
    next(loader)
    time.sleep(1)
    print(*(child.pid for child in multiprocessing.active_children()), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except OSError:
        return False


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_workers_die_with_a_killed_parent():
    """Also workers that are stuck in reading."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(ORPHANS)], capture_output=True, text=True, timeout=120
    )
    workers = [int(pid) for pid in done.stdout.split()]
    assert len(workers) == 2, done.stderr
    deadline = time.monotonic() + 10
    while any(map(alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(alive, workers))


def test_forked_workers_warn_about_nothing(make_loader, list_source, capfd, recwarn):
    from titan_pretrain.tokenizer import train_bpe

    tokenizer = train_bpe(["some words of text"] * 50, 300)  # uses the library's threads
    next(make_loader(list_source(50), tokenizer=tokenizer, workers=3))
    assert capfd.readouterr().err == ""
    assert not list(recwarn)


def test_spawned_workers_can_be_made(list_source):
    """Where there is no fork, sources and plans travel by pickle."""
    from titan_pretrain.data.plan import Plan
    from titan_pretrain.data.sequences import SequenceDataset, Share

    dataset = SequenceDataset(list_source(20), None, Plan(48, 0, True), 8, Share.of_rank(48, 0, 0, 1), {})
    assert pickle.loads(pickle.dumps(dataset)).source.identity() == list_source(20).identity()
