"""Device facts of NVIDIA Volta and Turing GPUs; the fused kernels come in later releases.

* :mod:`titan_kernels.device`: what a card can do, with the figures of its data sheet.

Importing this package needs neither a GPU nor a CUDA driver, and starts no CUDA context.
"""

from titan_kernels._version import __version__

__all__ = ["__version__"]
