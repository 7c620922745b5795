"""Compiles the package's CUDA kernels while its wheel is built; needs NVRTC from PyPI, no toolkit.

``python build_tools`` is what CMake runs, see :mod:`kernel_build.command`.
"""
