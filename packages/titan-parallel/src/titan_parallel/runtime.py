"""Process group and device of this rank, and a way out that keeps the exit code.

A rank is started by torchrun (or anything that sets ``RANK``, ``WORLD_SIZE``, ``MASTER_ADDR`` and
``MASTER_PORT``), or alone, in which case it forms a group of one.
"""

from __future__ import annotations

import datetime
import os
import pickle
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn, TypeVar, cast

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (  # torch.distributed does not export their types
    HashStore,
    PrefixStore,
    Store,
    TCPStore,
)

from titan_core.compat import warn_if_untested
from titan_parallel.errors import TopologyError

__all__ = ["Runtime", "is_lost_peer", "leave", "on_every", "on_main", "start"]

_T = TypeVar("_T")
_SIGNS_OF_A_LOST_PEER = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Timed out waiting",
    "gloo/transport",
)


@dataclass(frozen=True)
class Runtime:
    """Who this process is.

    Attributes:
        rank: number of this process in the world.
        world_size: number of processes.
        local_rank: number of this process on its node.
        device: where it computes.
        attempt: how often the elastic agent has restarted the workers.
    """

    rank: int
    world_size: int
    local_rank: int
    device: torch.device
    attempt: int = 0

    @property
    def is_main(self) -> bool:
        """Whether this rank prints and writes the run's files."""
        return self.rank == 0


def start(*, timeout_s: float = 600.0, env: Mapping[str, str] = os.environ) -> Runtime:
    """Initialise ``torch.distributed`` for this process.

    Args:
        timeout_s: seconds a collective may wait for a peer.
        env: where torchrun's variables are looked up.

    Raises:
        TopologyError: ``RANK`` is set but its companions are not, or are no numbers.
    """
    warn_if_untested()
    rank, world_size, local_rank = _ranks(env)
    device = _device(local_rank)
    attempt = int(env.get("TORCHELASTIC_RESTART_COUNT", "0"))
    timeout = datetime.timedelta(seconds=timeout_s)
    dist.init_process_group(
        backend="cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo",
        store=_store(rank, world_size, attempt, timeout, env),
        rank=rank,
        world_size=world_size,
        timeout=timeout,
    )
    return Runtime(rank, world_size, local_rank, device, attempt)


def _ranks(env: Mapping[str, str]) -> tuple[int, int, int]:
    if "RANK" not in env:
        return 0, 1, 0
    needed = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    missing = [name for name in needed if name not in env]
    if missing:
        raise TopologyError(
            f"RANK is set but {', '.join(missing)} not: start the ranks with torchrun or --nproc, "
            "or unset RANK to train in one process"
        )
    try:
        return int(env["RANK"]), int(env["WORLD_SIZE"]), int(env["LOCAL_RANK"])
    except ValueError as error:
        raise TopologyError(f"RANK, WORLD_SIZE and LOCAL_RANK must be whole numbers: {error}") from None


def _device(local_rank: int) -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    if local_rank >= torch.cuda.device_count():
        raise TopologyError(
            f"local rank {local_rank} has no GPU of its own: this node shows {torch.cuda.device_count()}; "
            "start at most as many processes per node"
        )
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device


def _store(
    rank: int, world_size: int, attempt: int, timeout: datetime.timedelta, env: Mapping[str, str]
) -> Store:
    if world_size == 1:
        return HashStore()
    agent_has_store = env.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    store = TCPStore(
        env["MASTER_ADDR"],
        int(env["MASTER_PORT"]),
        world_size,
        is_master=rank == 0 and not agent_has_store,
        timeout=timeout,
    )
    # An elastic restart reuses the agent's store, which still holds the dead ranks' addresses.
    return PrefixStore(f"titan/attempt-{attempt}", store)


def on_main(fn: Callable[[], _T]) -> _T:
    """Call ``fn`` on rank 0 and return its result on every rank; every rank calls this.

    An exception of ``fn`` is raised on every rank, so that none waits for a peer that has given up.

    Args:
        fn: returns, or raises, something that can be pickled.
    """
    box: list[tuple[_T | None, Exception | None]] = [(None, None)]
    if dist.get_rank() == 0:
        try:
            box = [(fn(), None)]
        except Exception as error:  # whatever it is, the peers must learn of it
            box = [(None, _sendable(error))]
    dist.broadcast_object_list(box, src=0)
    result, failure = box[0]
    if failure is not None:
        raise failure
    return cast(_T, result)


def on_every(fn: Callable[[], _T]) -> _T:
    """Call ``fn`` on every rank and return this rank's result; every rank calls this.

    Where ``fn`` raised, its exception goes on up; where it did not, that of the first rank it failed
    on is raised, so that none waits for a peer that has given up.

    Args:
        fn: may raise something that can be pickled.
    """
    result, own = None, None
    try:
        result = fn()
    except Exception as error:  # whatever it is, the peers must learn of it
        own = error
    failures: list[Exception | None] = [None] * dist.get_world_size()
    dist.all_gather_object(failures, own and _sendable(own))
    failure = own or next((error for error in failures if error is not None), None)
    if failure is not None:
        raise failure
    return cast(_T, result)


def _sendable(error: Exception) -> Exception:
    """``error``, or its words if it can't be unpickled (required keyword arguments, say)."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 -- made a moment ago
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def is_lost_peer(error: BaseException) -> bool:
    """Whether ``error`` only says that another rank ended or stopped answering."""
    if isinstance(error, dist.DistError):
        return True
    # gloo raises plain RuntimeErrors
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in _SIGNS_OF_A_LOST_PEER)


def leave(code: int) -> NoReturn:
    """End the process with ``code`` at once, after flushing its output.

    gloo's threads may abort the interpreter during a normal exit, after all work is done, which
    would turn a successful run into a failed one.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
