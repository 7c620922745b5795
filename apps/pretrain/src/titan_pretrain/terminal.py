"""What an interrupted program owes the terminal."""

from __future__ import annotations

import sys

__all__ = ["show_cursor"]

_SHOW_CURSOR = "\x1b[?25h"  # DECTCEM, a private mode of ECMA-48 terminals


def show_cursor() -> None:
    """Show the cursor again, which a progress line hides; does nothing where there is no terminal."""
    if sys.stdout is not None and sys.stdout.isatty():
        sys.stdout.write(_SHOW_CURSOR)
        sys.stdout.flush()
