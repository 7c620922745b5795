import os
import socket
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

from titan_parallel import runtime
from titan_parallel.errors import RankError, TopologyError
from titan_parallel.testing import run_ranks


class OddError(Exception):
    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def test_on_main_shares_the_result():
    assert run_ranks(3, lambda: runtime.on_main(lambda: f"from {dist.get_rank()}")) == ["from 0"] * 3


def test_on_main_raises_everywhere_with_everything_the_error_carries():
    def fail():
        raise OddError("no", hint="try yes")

    def attempt():
        try:
            runtime.on_main(fail)
        except OddError as error:
            return str(error), error.hint

    assert run_ranks(2, attempt) == [("no", "try yes")] * 2


def test_on_main_shares_the_words_of_an_error_that_cannot_be_sent():
    class LocalError(Exception):
        pass

    def fail():
        raise LocalError("here only")

    def attempt():
        with pytest.raises(RuntimeError, match="LocalError: here only"):
            runtime.on_main(fail)
        return True

    assert run_ranks(2, attempt) == [True] * 2


def test_on_every_returns_what_each_rank_has():
    assert run_ranks(2, lambda: runtime.on_every(dist.get_rank)) == [0, 1]


def test_on_every_raises_everywhere_what_one_rank_met():
    def fail():
        if dist.get_rank():
            raise OddError(f"no, says {dist.get_rank()}", hint="try yes")

    def attempt():
        try:
            runtime.on_every(fail)
        except OddError as error:
            return str(error), error.hint

    assert run_ranks(3, attempt) == [(f"no, says {rank}", "try yes") for rank in (1, 1, 2)]


def test_a_dead_peer_is_recognised():
    def meet():
        if dist.get_rank() == 1:
            os._exit(0)
        try:
            dist.all_reduce(torch.zeros(1))
        except RuntimeError as error:
            raise ValueError(f"recognised: {runtime.is_lost_peer(error)}") from error

    with pytest.raises(RankError, match="recognised: True"):
        run_ranks(2, meet)


def test_other_errors_are_not_taken_for_a_dead_peer():
    with pytest.raises(RuntimeError) as caught:
        torch.zeros(2) + torch.zeros(3)
    assert not runtime.is_lost_peer(caught.value)
    assert not runtime.is_lost_peer(ValueError("Connection closed by peer"))


@pytest.mark.parametrize("missing", ["WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"])
def test_half_an_environment_names_what_is_missing(missing):
    env = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    del env[missing]
    with pytest.raises(TopologyError, match=missing):
        runtime.start(env=env)


def test_numbers_must_be_numbers():
    env = {"RANK": "x", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}
    with pytest.raises(TopologyError, match="whole numbers"):
        runtime.start(env=env)


SCRIPT = """
import sys, torch, torch.distributed as dist
from titan_parallel.runtime import start, leave
here = start(timeout_s=30)
total = torch.ones(1)
dist.all_reduce(total)
print(here.rank, here.world_size, here.device, int(total), flush=True)
leave(int(sys.argv[1]))
"""


def _run(env, code=0):
    clean = {
        k: v for k, v in os.environ.items() if not k.startswith(("RANK", "WORLD", "TORCHELASTIC", "MASTER"))
    }
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(code)], env=clean | env, stdout=subprocess.PIPE, text=True
    )


def test_alone_and_the_exit_code():
    process = _run({}, code=3)
    out, _ = process.communicate(timeout=60)
    assert out == "0 1 cpu 1\n"
    assert process.returncode == 3


@pytest.mark.slow
def test_without_torchrun_rank_0_serves_the_store():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    processes = [_run(common | {"RANK": str(r), "LOCAL_RANK": str(r)}) for r in range(2)]
    outputs = [process.communicate(timeout=60)[0] for process in processes]
    assert outputs == ["0 2 cpu 2\n", "1 2 cpu 2\n"]
