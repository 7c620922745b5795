"""Memory measurements of a training process; the allocator core comes in later releases.

* :mod:`titan_alloc.memory`: what a GPU or the host holds for this process now and held at most.
"""

from titan_alloc._version import __version__

__all__ = ["__version__"]
