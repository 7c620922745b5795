"""Steps that every rank takes together: results are shared, and one rank's failure is everybody's.

A rank that raised while its peers wait in a collective would leave them hanging until the process
group's timeout.  So nothing here raises before all ranks know the outcome, and then all raise alike.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch.distributed as dist

from titan_parallel.errors import CheckpointError

__all__ = ["describe", "from_rank0", "gather", "rank", "together", "world_size"]

T = TypeVar("T")
_LISTED = 3  # messages of different ranks shown in one error


def rank() -> int:
    """This process's rank; 0 without a process group."""
    return dist.get_rank() if _active() else 0


def world_size() -> int:
    """Ranks of the process group; 1 without one."""
    return dist.get_world_size() if _active() else 1


def _active() -> bool:
    return dist.is_available() and dist.is_initialized()


def gather(fn: Callable[[], T], *, doing: str, error: type[CheckpointError]) -> list[T]:
    """Call ``fn`` on every rank and return the results of all, by rank.

    Args:
        fn: this rank's part; its result must pickle.
        doing: what is being done, for messages ("saving /runs/a/step-00000010").
        error: class for failures that are no :class:`CheckpointError` already.

    Raises:
        CheckpointError: on all ranks, when ``fn`` raised on any or a rank died.
    """
    outcome = _attempt(fn, doing, error)
    outcomes: list[T | CheckpointError] = [outcome]
    if world_size() > 1:
        outcomes = [outcome] * world_size()
        try:
            dist.all_gather_object(outcomes, outcome)
        except RuntimeError as lost:
            raise _lost_peer(lost, doing, error) from lost
    return _results(outcomes)


def together(fn: Callable[[], T], *, doing: str, error: type[CheckpointError]) -> T:
    """Call ``fn`` on every rank and return this rank's own result, once all ranks have theirs.

    Raises:
        CheckpointError: on all ranks, when ``fn`` raised on any or a rank died.
    """
    own: list[T] = []
    gather(lambda: own.append(fn()), doing=doing, error=error)
    return own[0]


def from_rank0(fn: Callable[[], T], *, doing: str, error: type[CheckpointError]) -> T:
    """Call ``fn`` on rank 0 and return its result on all ranks.

    Args:
        fn: runs on rank 0 only; its result must pickle.
        doing: what is being done, for messages.
        error: class for failures that are no :class:`CheckpointError` already.

    Raises:
        CheckpointError: on all ranks, when ``fn`` raised or a rank died.
    """
    shared: list[T | CheckpointError | None] = [_attempt(fn, doing, error) if rank() == 0 else None]
    if world_size() > 1:
        try:
            dist.broadcast_object_list(shared, src=0)
        except RuntimeError as lost:
            raise _lost_peer(lost, doing, error) from lost
    result = shared[0]
    if isinstance(result, CheckpointError):
        raise result
    return result  # type: ignore[return-value]  # rank 0 put a T in


def describe(error: BaseException) -> str:
    """One line that says what went wrong: the system's words and the file for an ``OSError``."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.strerror}: {error.filename}" if error.filename else error.strerror
    first_line = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__


def _attempt(fn: Callable[[], T], doing: str, error: type[CheckpointError]) -> T | CheckpointError:
    try:
        return fn()
    except CheckpointError as known:
        return known
    except Exception as other:
        return error(f"{doing}: {describe(other)}")


def _results(outcomes: Sequence[T | CheckpointError]) -> list[T]:
    failures = {number: o for number, o in enumerate(outcomes) if isinstance(o, CheckpointError)}
    if not failures:
        return [o for o in outcomes if not isinstance(o, CheckpointError)]
    first = next(iter(failures.values()))
    by_message: dict[str, list[int]] = {}
    for number, failure in failures.items():
        by_message.setdefault(str(failure), []).append(number)
    if len(by_message) == 1:
        raise first
    texts = [f"rank {numbers[0]}: {message}" for message, numbers in by_message.items()]
    more = f"; and {len(texts) - _LISTED} more" if len(texts) > _LISTED else ""
    raise type(first)("; ".join(texts[:_LISTED]) + more)


def _lost_peer(lost: RuntimeError, doing: str, error: type[CheckpointError]) -> CheckpointError:
    return error(f"{doing}: another rank ended or stopped answering ({describe(lost)})")
