"""Optional packages: the extras of the distribution."""

from __future__ import annotations

import importlib
from types import ModuleType

from titan_pretrain.errors import UsageError

__all__ = ["require"]


def require(module: str, extra: str, what: str) -> ModuleType:
    """Import an optional package.

    Args:
        module: Its import name.
        extra: The extra of this distribution that brings it.
        what: What needs it, for the message.

    Raises:
        UsageError: It isn't installed; gives the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError:
        raise UsageError(
            f"{what} needs the package {module}: pip install 'torch-titan-pretrain[{extra}]'"
        ) from None
