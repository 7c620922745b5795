"""A launch that does not end can be ended."""

import signal
import threading
import time

import pytest
import torch

from titan_kernels.errors import EmulatorError


class Bell(Exception):
    pass


def test_a_signal_ends_a_launch(order_bugs):
    def ring(*_):
        raise Bell

    order_bugs("endless_ok", [torch.zeros(64)], block=64)  # compiles, which a signal ends as well
    before = signal.signal(signal.SIGALRM, ring)
    begin = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(Bell):
            order_bugs("endless_bug", [torch.zeros(64)], block=64, time_limit=60)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert 0.3 <= time.monotonic() - begin < 30
    order_bugs("endless_ok", [torch.zeros(64)], block=64)


def test_a_session_in_another_thread_ends_by_its_limit(order_bugs):
    seen = []

    def work():
        try:
            order_bugs("endless_bug", [torch.zeros(64)], block=64, time_limit=0.2, poison=False)
        except EmulatorError as error:
            seen.append(error.rule)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == ["endless"]
