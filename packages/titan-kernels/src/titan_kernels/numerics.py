"""Precision conventions that all operators share."""

from __future__ import annotations

import torch

__all__ = ["compute_dtype"]


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype to compute in: fp32 for 16-bit tensors, otherwise the tensor's own."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
