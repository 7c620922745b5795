"""Implementations by name: what :func:`prefer` and the environment variable ``TITAN_PREFER`` ask for.

What is asked for by name must serve: if it cannot, the call raises
:class:`~titan_kernels.errors.UnsupportedError`.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Iterable, Iterator, Mapping

from titan_kernels.errors import TitanKernelsError

__all__ = ["VARIABLE", "prefer", "preferred"]

VARIABLE = "TITAN_PREFER"
# Process-wide, not per thread: autograd runs the backward of CUDA tensors in threads of its own.
_preferences: list[Mapping[str, str]] = []


@contextlib.contextmanager
def prefer(everywhere: str | None = None, /, **by_op: str) -> Iterator[None]:
    """Use an implementation by name: ``prefer("triton")`` or ``prefer(rms_norm="reference")``.

    It holds for the whole process, not only for this thread, because the backward of CUDA tensors
    runs in other threads.  A call that the named implementation cannot serve raises
    :class:`~titan_kernels.errors.UnsupportedError`.

    Args:
        everywhere: The implementation for every operator without one of its own.
        by_op: Implementations by the operator's name.

    Raises:
        TitanKernelsError: There is no such operator.
    """
    _check("prefer", by_op)
    entry = {**by_op, **({} if everywhere is None else {"": everywhere})}
    _preferences.append(entry)
    try:
        yield
    finally:
        _preferences[:] = [each for each in _preferences if each is not entry]  # others may equal it


def preferred(op: str) -> str | None:
    """The implementation that is asked for by name, if any.

    Raises:
        TitanKernelsError: ``TITAN_PREFER`` names an operator that does not exist.
    """
    for entry in reversed(_preferences):
        if found := entry.get(op) or entry.get(""):
            return found
    if not (text := os.environ.get(VARIABLE)):
        return None
    choices = _parse_environment(text)
    return choices.get(op, choices.get(""))


@functools.lru_cache(maxsize=8)
def _parse_environment(text: str) -> Mapping[str, str]:
    """``TITAN_PREFER``: ``triton`` for all operators, or ``rms_norm=triton,softmax=reference``."""
    parts = [part.strip().rpartition("=") for part in text.split(",") if part.strip()]
    _check(f"{VARIABLE} ({text})", {op for op, _, _ in parts if op})
    return {op: name for op, _, name in parts}


def _check(source: str, names: Iterable[str]) -> None:
    from titan_kernels.registry import ops  # it imports this module

    known = ops()
    if unknown := sorted(set(names) - set(known)):
        raise TitanKernelsError(
            f"{source}: no such operator: {', '.join(unknown)}; there are {', '.join(sorted(known))}"
        )
