"""Which PyTorch this is, and whether its version is tested."""

from __future__ import annotations

import functools
import re
import warnings

import torch

__all__ = ["FIRST_TESTED", "LAST_TESTED", "UntestedTorchWarning", "untested_reason", "warn_if_untested"]

FIRST_TESTED = (2, 11)
"""Oldest PyTorch release that ``nox -s compat`` covers."""
LAST_TESTED = (2, 14)
"""Newest PyTorch release that ``nox -s compat`` covers, and the last with wheels for Volta."""


class UntestedTorchWarning(UserWarning):
    """This PyTorch version is outside the tested range."""


def untested_reason(version: str) -> str | None:
    """Why ``version`` (such as ``"2.13.0+cu126"``) counts as untested; ``None`` if it is tested."""
    release = re.match(r"(\d+)\.(\d+)", version)
    if release is not None and FIRST_TESTED <= (int(release[1]), int(release[2])) <= LAST_TESTED:
        return None
    tested = f"{FIRST_TESTED[0]}.{FIRST_TESTED[1]} to {LAST_TESTED[0]}.{LAST_TESTED[1]}"
    return (
        f"torch ({version}) is untested with titan: tested are {tested}; "
        f"if something fails, try one of those first"
    )


@functools.cache
def warn_if_untested() -> None:
    """Warn, once per process, when the running PyTorch is outside the tested range."""
    reason = untested_reason(torch.__version__)
    if reason is not None:
        warnings.warn(reason, UntestedTorchWarning, stacklevel=2)
