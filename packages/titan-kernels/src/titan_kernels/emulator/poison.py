"""NaN in the memory that ``torch.empty`` and its kin return."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

__all__ = ["poisoned"]

_lock = threading.Lock()
_restore: list[Callable[[], None]] = []  # one per user; the oldest undoes everything


@contextlib.contextmanager
def poisoned() -> Iterator[None]:
    """Poison while the context is active.

    PyTorch's settings for it belong to the process, so threads share them: the last one to leave
    restores what the first one found.
    """
    with _lock:
        _restore.append(_turn_on())
    try:
        yield
    finally:
        with _lock:
            if len(_restore) == 1:
                _restore[0]()
            _restore.pop()


def _turn_on() -> Callable[[], None]:
    """Returns what sets everything back."""
    # A module class of PyTorch's own defines its setting.
    deterministic: Any = torch.utils.deterministic
    enabled = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    fill = deterministic.fill_uninitialized_memory

    def restore() -> None:
        torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
        deterministic.fill_uninitialized_memory = fill

    torch.use_deterministic_algorithms(True, warn_only=warn_only or not enabled)
    deterministic.fill_uninitialized_memory = True
    return restore
