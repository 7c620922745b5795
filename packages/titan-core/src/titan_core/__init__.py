"""PyTorch compatibility layer; operator dispatch and fusion come in later releases.

* :mod:`titan_core.compat`: which PyTorch versions are tested, and a warning outside them.
"""

from titan_core._version import __version__

__all__ = ["__version__"]
