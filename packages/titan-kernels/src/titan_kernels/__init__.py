"""Device facts of NVIDIA Volta and Turing GPUs, and kernels for them.

* :mod:`titan_kernels.device`: what a card can do, with the figures of its data sheet.
* :mod:`titan_kernels.ops`: the operators; also ``torch.ops.titan.*``.
* :func:`titan_kernels.explain`: which implementation serves a call, and why not the others.
* :func:`titan_kernels.prefer`: chooses an implementation by name.
* :func:`titan_kernels.emulated`: runs the CUDA kernels on CPU tensors, checks and measures them.

Importing this package needs neither a GPU nor a CUDA driver, and starts no CUDA context.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from titan_kernels._version import __version__

if TYPE_CHECKING:
    from titan_kernels.emulator import emulated as emulated
    from titan_kernels.preferences import prefer as prefer
    from titan_kernels.registry import explain as explain

__all__ = ["__version__", "emulated", "explain", "prefer"]

_HOMES = {"emulated": "emulator", "explain": "registry", "prefer": "preferences"}


def __getattr__(name: str) -> Any:
    """Import what needs PyTorch when it is first used, so that commands which don't start at once."""
    if name in _HOMES:
        return getattr(importlib.import_module(f"titan_kernels.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
