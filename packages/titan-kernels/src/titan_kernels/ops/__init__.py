"""The operators; each has a room of its own, see ``docs/adding-a-kernel.md``."""

from titan_kernels.ops.rms_norm import rms_norm

__all__ = ["rms_norm"]
