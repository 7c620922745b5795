"""Standard output and standard error in whatever state a program gets and leaves them."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import Any, TextIO

__all__ = ["LossyStream", "discard", "flush_or_discard", "prepare_streams", "show_cursor"]

_SHOW_CURSOR = "\x1b[?25h"  # DECTCEM, a private mode of ECMA-48 terminals


def prepare_streams() -> None:
    r"""Make both streams fit to print to; call it first of all.

    Characters that an encoding lacks are printed as ``\xe9``.  Closed streams (``>&-``) lead nowhere: the
    next file that is opened would get their number, and with it what libraries print.
    """
    sys.stdout = sys.stdout or _open_null(1)
    sys.stderr = sys.stderr or _open_null(2)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def discard(stream: TextIO) -> None:
    """Let what is printed on ``stream`` from now on, and what waits in its buffer, go nowhere."""
    with suppress(OSError, ValueError):  # no file, or closed
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def flush_or_discard(stream: TextIO) -> None:
    """Flush ``stream``; if nobody reads it any more, let it go nowhere, so that no later flush fails."""
    try:
        stream.flush()
    except OSError:
        discard(stream)


class LossyStream:
    """``stream``, but going nowhere instead of failing when its reader, terminal or disk is gone.

    Also for threads that print: an error there would reach nobody but the user, as a traceback.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, or drop ``text``."""
        try:
            return self._stream.write(text)
        except OSError:
            discard(self._stream)
            return len(text)

    def flush(self) -> None:
        """Flush, or drop what waits."""
        flush_or_discard(self._stream)


def show_cursor() -> None:
    """Show the cursor again, which a progress line hides; does nothing where there is no terminal."""
    if sys.stdout is not None and sys.stdout.isatty():
        sys.stdout.write(_SHOW_CURSOR)
        sys.stdout.flush()


def _open_null(number: int) -> TextIO:
    """The null device, under ``number`` if that is free, as it is in a process just started."""
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.fstat(number)
    except OSError:
        os.dup2(null, number)
        os.close(null)
        null = number
    os.set_inheritable(null, True)
    return os.fdopen(null, "w", encoding="utf-8")
