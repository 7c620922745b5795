"""Meshes, FSDP2, fp16 loss scaling and checkpoints on PyTorch's own engines."""

from titan_parallel._version import __version__

__all__ = ["__version__"]
