"""Device facts of NVIDIA Volta and Turing GPUs, and kernels for them.

* :mod:`titan_kernels.device`: what a card can do, with the figures of its data sheet.
* :mod:`titan_kernels.ops`: the operators; also ``torch.ops.titan.*``.
* :func:`titan_kernels.explain`: which implementation serves a call, and why not the others.
* :func:`titan_kernels.prefer`: chooses an implementation by name.
* :func:`titan_kernels.emulated`: runs the CUDA kernels on CPU tensors, checks and measures them.

Importing this package needs neither a GPU nor a CUDA driver, and starts no CUDA context.
"""

from titan_kernels._version import __version__
from titan_kernels.emulator import emulated
from titan_kernels.registry import explain, prefer

__all__ = ["__version__", "emulated", "explain", "prefer"]
