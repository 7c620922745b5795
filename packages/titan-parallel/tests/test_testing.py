import os
import time

import pytest
import torch
import torch.distributed as dist

from titan_parallel.errors import RankError
from titan_parallel.testing import run_ranks


def test_results_come_back_by_rank():
    def add():
        total = torch.tensor([float(dist.get_rank())])
        dist.all_reduce(total)
        return dist.get_rank(), total.item()

    assert run_ranks(3, add) == [(0, 3.0), (1, 3.0), (2, 3.0)]


def test_an_exception_of_a_rank_is_shown_with_its_traceback():
    def fail():
        if dist.get_rank() == 1:
            raise ValueError("rank one is unwell")
        dist.barrier()

    with pytest.raises(RankError, match=r"(?s)rank 1 raised.*rank one is unwell"):
        run_ranks(2, fail)


def test_a_killed_rank_is_reported():
    def die():
        if dist.get_rank() == 0:
            os.kill(os.getpid(), 9)
        time.sleep(0.1)

    with pytest.raises(RankError, match="rank 0 died: signal SIGKILL"):
        run_ranks(2, die)


def test_a_hanging_rank_is_killed():
    started = time.monotonic()
    with pytest.raises(RankError, match="did not end within 1 s"):
        run_ranks(1, lambda: time.sleep(60), timeout_s=1.0)
    assert time.monotonic() - started < 10
