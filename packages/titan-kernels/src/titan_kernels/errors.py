"""The exceptions of titan_kernels."""

from __future__ import annotations

__all__ = ["EmulatorError", "LaunchError", "TitanKernelsError", "UnsupportedError"]


class TitanKernelsError(RuntimeError):
    """Base of every error that this package raises on purpose."""


class UnsupportedError(TitanKernelsError):
    """An implementation asked for by name cannot serve the call; the message says why."""


class LaunchError(TitanKernelsError):
    """A kernel could not be loaded or launched; names kernel, shapes, geometry and the driver's words."""


class EmulatorError(TitanKernelsError):
    """A kernel did something illegal under the emulator; names kernel, block, thread and source line."""
