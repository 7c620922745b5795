"""Implementations by name: what :func:`prefer` and the environment variable ``TITAN_PREFER`` ask for.

What is asked for by name must serve: if it cannot, the call raises
:class:`~titan_kernels.errors.UnsupportedError`.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Container, Iterator, Mapping, Sequence

from titan_kernels.errors import TitanKernelsError

__all__ = ["VARIABLE", "prefer", "preferred"]

VARIABLE = "TITAN_PREFER"
# Process-wide, not per thread: autograd runs the backward of CUDA tensors in threads of its own.
_preferences: list[Mapping[str, str]] = []


@contextlib.contextmanager
def prefer(everywhere: str | None = None, /, **by_name: str) -> Iterator[None]:
    """Use an implementation by name: ``prefer("triton")`` or ``prefer(rms_norm="reference")``.

    It holds for the whole process, not only for this thread, because the backward of CUDA tensors
    runs in other threads.  A call that the named implementation cannot serve raises
    :class:`~titan_kernels.errors.UnsupportedError`.

    Args:
        everywhere: The implementation for every operator without one of its own.
        by_name: Implementations by name.  The name of a public function, such as ``swiglu``, stands for all
            operators that it runs, forward and backward; that of a folder in ``titan_kernels.ops``, such as
            ``reduce``, for all operators there; each but for those that have no such implementation.  An
            operator's own name, such as ``rms_norm_backward``, goes before both.

    Raises:
        TitanKernelsError: There is no such name, or no such implementation of what it stands for.
    """
    _check("prefer", by_name)
    entry = {**by_name, **({} if everywhere is None else {"": everywhere})}
    _preferences.append(entry)
    try:
        yield
    finally:
        _preferences[:] = [each for each in _preferences if each is not entry]  # others may equal it


def preferred(names: Sequence[str], implementations: Container[str]) -> str | None:
    """The implementation that is asked for by name, if any.

    Args:
        names: What an operator can be called by, its own name first.
        implementations: Those that it has.

    Raises:
        TitanKernelsError: ``TITAN_PREFER`` has a name that does not exist.
    """
    for entry in reversed(_preferences):
        if found := _find(entry, names, implementations):
            return found
    text = os.environ.get(VARIABLE)
    return _find(_parse_environment(text), names, implementations) if text else None


def _find(entry: Mapping[str, str], names: Sequence[str], implementations: Container[str]) -> str | None:
    own, *others = names
    if own in entry:
        return entry[own]
    found = (entry[name] for name in others if name in entry and entry[name] in implementations)
    return next(found, entry.get(""))


@functools.lru_cache(maxsize=8)
def _parse_environment(text: str) -> Mapping[str, str]:
    """``TITAN_PREFER``: ``triton`` for all operators, or ``rms_norm=triton,softmax=reference``."""
    parts = [part.strip().rpartition("=") for part in text.split(",") if part.strip()]
    _check(f"{VARIABLE} ({text})", {name: implementation for name, _, implementation in parts if name})
    return {name: implementation for name, _, implementation in parts}


def _check(source: str, by_name: Mapping[str, str]) -> None:
    from titan_kernels.registry import ops  # it imports this module

    known: dict[str, dict[str, None]] = {}
    for op in ops().values():
        for name in op.names:
            known.setdefault(name, {}).update(dict.fromkeys(each.name for each in op.implementations))
    problems = [
        f"{name} has no implementation {implementation!r}; it has {', '.join(known[name])}"
        for name, implementation in by_name.items()
        if name in known and implementation not in known[name]
    ]
    if unknown := sorted(set(by_name) - set(known)):
        problems.append(f"no such operator: {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    if problems:
        raise TitanKernelsError(f"{source}: {'; '.join(problems)}")
