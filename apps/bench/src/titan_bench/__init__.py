"""Benchmarks that verify before they time."""

from titan_bench._version import __version__

__all__ = ["__version__"]
