"""PyTorch compatibility layer; operator dispatch and fusion come in later releases.

* :mod:`titan_core.compat`: which PyTorch versions are tested, and what the present one offers.
"""

from titan_core._version import __version__

__all__ = ["__version__"]
