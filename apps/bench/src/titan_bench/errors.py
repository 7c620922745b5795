"""The exceptions of titan-bench.

::

    BenchError               exit code 1
    +-- VerificationError    a result is wrong: its side isn't timed
    +-- UsageError           exit code 2: the options make no sense
"""

from __future__ import annotations

__all__ = ["BenchError", "UsageError", "VerificationError"]


class BenchError(Exception):
    """Base class; shown as ``error: <message>`` without a traceback."""

    exit_code = 1


class VerificationError(BenchError):
    """A result is wrong, so its speed means nothing."""


class UsageError(BenchError):
    """Options that make no sense; names all of them."""

    exit_code = 2
