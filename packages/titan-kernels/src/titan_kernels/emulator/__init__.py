"""The SIMT emulator: runs the package's CUDA kernels on CPU tensors, checks and measures them.

::

    with titan_kernels.emulated(count=True) as session:
        y = titan_kernels.ops.rms_norm(x, weight)
    print(session.launches[-1].table())

It needs a C++ compiler (g++ 12 or later) at run time and nothing else.
"""

from titan_kernels.emulator.compile import compile_unit, include_directories, included_files, unit_source
from titan_kernels.emulator.counters import Counters, LaunchReport, LineCounters
from titan_kernels.emulator.session import MULTIPROCESSORS, Session, active, emulated

__all__ = [
    "MULTIPROCESSORS",
    "Counters",
    "LaunchReport",
    "LineCounters",
    "Session",
    "active",
    "compile_unit",
    "emulated",
    "include_directories",
    "included_files",
    "unit_source",
]
