"""The exceptions of titan_kernels."""

from __future__ import annotations

import functools
from typing import Any

__all__ = ["CompileError", "EmulatorError", "LaunchError", "TitanKernelsError", "UnsupportedError"]


class TitanKernelsError(RuntimeError):
    """Base of every error that this package raises on purpose."""


class UnsupportedError(TitanKernelsError):
    """An implementation asked for by name cannot serve the call; the message says why."""


class LaunchError(TitanKernelsError):
    """A kernel could not be loaded or launched; names kernel, shapes, geometry and the driver's words."""


class CompileError(TitanKernelsError):
    """A kernel could not be compiled for the emulator; holds the compiler's words."""


class EmulatorError(TitanKernelsError):
    """A kernel did something illegal under the emulator; names kernel, block, thread and source line.

    Args:
        message: The whole message.
        rule: What was broken, such as ``"shared-race"``; docs/emulator.md lists all.
        kernel: The kernel's name.
        block: Index of the block.
        thread: Index of the thread in its block.
        file: Source file.
        line: Line in it.
        seed: The seed of the schedule, which repeats it.
    """

    def __init__(
        self,
        message: str,
        *,
        rule: str,
        kernel: str,
        block: tuple[int, int, int],
        thread: tuple[int, int, int],
        file: str,
        line: int,
        seed: int,
    ) -> None:
        super().__init__(message)
        self.rule, self.kernel, self.block, self.thread = rule, kernel, block, thread
        self.file, self.line, self.seed = file, line, seed

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles with its keyword arguments, which exceptions leave out: worker processes send errors."""
        return functools.partial(EmulatorError, **self.__dict__), self.args
