"""Device facts of NVIDIA Volta and Turing GPUs, and kernels for them.

* :mod:`titan_kernels.device`: what a card can do, with the figures of its data sheet.
* :func:`titan_kernels.emulated`: runs the CUDA kernels on CPU tensors, checks and measures them.

Importing this package needs neither a GPU nor a CUDA driver, and starts no CUDA context.
"""

from titan_kernels._version import __version__
from titan_kernels.emulator import emulated

__all__ = ["__version__", "emulated"]
