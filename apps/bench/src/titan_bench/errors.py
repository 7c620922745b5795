"""The exceptions of titan-bench.

::

    BenchError               exit code 1
    +-- VerificationError    the sides don't compute the same: nothing is timed
"""

from __future__ import annotations

__all__ = ["BenchError", "VerificationError"]


class BenchError(Exception):
    """Base class; shown as ``error: <message>`` without a traceback."""


class VerificationError(BenchError):
    """A result is wrong, so its speed means nothing."""
