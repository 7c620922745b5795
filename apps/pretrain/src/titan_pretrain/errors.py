"""The exceptions of titan-pretrain.

::

    PretrainError            exit code 1
    +-- UsageError           exit code 2: the user asked for something impossible; nothing started
    |   +-- ConfigError      one or more problems of a config, all at once
    +-- DataError            a dataset or tokenizer can't be read
    +-- TrainingError        the run can't go on

A message says: option (value), the rule, the way out.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["ConfigError", "DataError", "PretrainError", "TrainingError", "UsageError"]


class PretrainError(Exception):
    """Base class; shown to the user as ``error: <message>`` without a traceback."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(PretrainError):
    """The command line or the config asks for something impossible."""

    exit_code = 2


class ConfigError(UsageError):
    """Every problem found in a config; ``problems`` holds one :class:`UsageError` each."""

    def __init__(self, problems: Sequence[UsageError]) -> None:
        super().__init__("\n".join(problem.message for problem in problems))
        self.problems = tuple(problems)


class DataError(PretrainError):
    """A dataset or tokenizer file is missing, unreadable or empty."""


class TrainingError(PretrainError):
    """The run can't go on: a non-finite loss, a full disk, a lost rank."""
