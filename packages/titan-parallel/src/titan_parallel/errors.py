"""The exceptions of titan_parallel.

::

    TitanParallelError
    +-- TopologyError            the degrees don't fit the ranks
    +-- PrecisionError           the precision can't run on the device
    +-- RankError                a rank failed, hung or died (test harness)
    +-- CheckpointError
        +-- CheckpointNotFoundError   nothing to load at this path
        +-- CheckpointCorruptError    a file is missing, truncated or changed
        +-- CheckpointMismatchError   a checkpoint of another model
        +-- CheckpointWriteError      a save failed; earlier checkpoints are untouched

A message says: option (value), the rule, the way out.
"""

from __future__ import annotations


class TitanParallelError(Exception):
    """Base class of this package's errors."""


class TopologyError(TitanParallelError, ValueError):
    """Parallel degrees that don't fit the world size."""


class PrecisionError(TitanParallelError, ValueError):
    """A precision the device can't run."""


class RankError(TitanParallelError, RuntimeError):
    """A rank failed, hung or died."""


class CheckpointError(TitanParallelError):
    """Base class of checkpoint errors."""


class CheckpointNotFoundError(CheckpointError):
    """Nothing to load at this path."""


class CheckpointCorruptError(CheckpointError):
    """A checkpoint file is missing, truncated or changed."""


class CheckpointMismatchError(CheckpointError):
    """The checkpoint belongs to another model."""


class CheckpointWriteError(CheckpointError):
    """A save failed; earlier checkpoints are untouched."""
