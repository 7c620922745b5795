"""``python -m titan_pretrain``, the processes of torchrun, and the ``titan-pretrain`` script."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import NoReturn

from titan_pretrain.cli.app import main as run_command_line
from titan_pretrain.terminal import show_cursor

__all__ = ["main"]


def main() -> NoReturn:
    """Run the command line and end the process with its exit code."""
    code = run_command_line()
    show_cursor()  # whatever was interrupted
    if "torch" in sys.modules:
        _leave(code)
    sys.exit(code)


def _leave(code: int) -> NoReturn:
    """End at once: a normal exit may abort in gloo's threads, or in a torch whose import was interrupted."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # closed by whoever started us
            stream.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
