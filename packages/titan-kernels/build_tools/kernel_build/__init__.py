"""Compiles the package's CUDA kernels while its wheel is built; needs NVRTC from PyPI, no toolkit.

``python -m kernel_build`` is what CMake runs, see :mod:`kernel_build.__main__`.
"""
