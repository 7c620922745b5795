"""Which PyTorch this is: whether the version is tested, and which features it has.

Features are probed by attribute, never derived from the version number: nightlies, vendor builds
and backports carry misleading numbers.
"""

from __future__ import annotations

import functools
import re
import warnings
from dataclasses import dataclass

import torch
from torch.distributed.fsdp import FSDPModule
from torch.nn import functional

__all__ = ["FIRST_TESTED", "LAST_TESTED", "Features", "UntestedTorchWarning", "features", "warn_if_untested"]

FIRST_TESTED = (2, 11)
"""Oldest PyTorch release that ``nox -s compat`` covers."""
LAST_TESTED = (2, 14)
"""Newest PyTorch release that ``nox -s compat`` covers, and the last with wheels for Volta."""


class UntestedTorchWarning(UserWarning):
    """This PyTorch version is outside the tested range."""


@dataclass(frozen=True)
class Features:
    """What this PyTorch build offers beyond the oldest release."""

    fsdp_force_sum: bool
    """FSDP2 can reduce gradients with a plain sum, which gloo needs for a custom divide factor."""
    fused_rms_norm: bool
    """``aten::_fused_rms_norm`` exists, so RMSNorm is one kernel without ``torch.compile``."""
    linear_cross_entropy: bool
    """``torch.nn.functional.linear_cross_entropy`` exists (logits in chunks)."""
    grouped_mm: bool
    """``torch.nn.functional.grouped_mm`` exists."""


@functools.cache
def features() -> Features:
    """Probe the running PyTorch once."""
    return Features(
        fsdp_force_sum=hasattr(FSDPModule, "set_force_sum_reduction_for_comms"),
        fused_rms_norm=hasattr(torch.ops.aten, "_fused_rms_norm"),
        linear_cross_entropy=hasattr(functional, "linear_cross_entropy"),
        grouped_mm=hasattr(functional, "grouped_mm"),
    )


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
