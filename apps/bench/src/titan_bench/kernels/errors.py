"""What keeps a candidate out of the comparison without being a mistake."""

from __future__ import annotations

__all__ = ["NoCounterpartError"]


class NoCounterpartError(Exception):
    """A candidate does not offer the operator, or not with these options; the message says why."""
