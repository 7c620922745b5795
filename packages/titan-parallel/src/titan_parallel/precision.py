"""Which dtype a run computes in, chosen by the device's real abilities.

``torch.cuda.is_bf16_supported()`` counts emulation and says yes on Volta and Turing, so the choice
here goes by compute capability and, for the tensor-core-less GTX 16xx, by the card.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from titan_kernels import device as device_facts
from titan_parallel.errors import PrecisionError

__all__ = ["Precision", "resolve_precision"]

_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Precision:
    """A resolved precision.

    Attributes:
        name: ``fp32``, ``fp16`` or ``bf16``.
        compute_dtype: dtype of activations and of the gathered weights; masters are fp32.
        loss_scaling: whether gradients must be scaled (fp16 only).
        reason: one line for the log: why this one, and whether the device runs it natively.
    """

    name: str
    compute_dtype: torch.dtype
    loss_scaling: bool
    reason: str

    @property
    def mixed(self) -> bool:
        """Whether compute and master dtype differ."""
        return self.compute_dtype != torch.float32


def resolve_precision(name: str, device: torch.device) -> Precision:
    """Turn ``auto``, ``fp32``, ``fp16`` or ``bf16`` into a :class:`Precision` for ``device``.

    Raises:
        PrecisionError: unknown name.
    """
    if name != "auto" and name not in _DTYPES:
        raise PrecisionError(f"precision ({name}) is unknown; use auto, fp32, fp16 or bf16")
    if device.type != "cuda":
        slow = "; CPUs compute fp16 slowly: good for a try, not for training" if name == "fp16" else ""
        return _precision("fp32" if name == "auto" else name, f"on {device.type}{slow}")
    capability = torch.cuda.get_device_capability(device)
    card = torch.cuda.get_device_name(device)
    return for_card(name, card, capability)


def for_card(name: str, card: str, capability: tuple[int, int]) -> Precision:
    """The precision for a card by its name and compute capability (no CUDA needed)."""
    native_bf16 = device_facts.native_bf16(capability)
    sm = f"{card}, sm_{capability[0]}{capability[1]}"
    if name == "auto":
        if native_bf16:
            return _precision("bf16", f"{sm} runs bf16 natively")
        if not device_facts.has_tensor_cores(card, capability):
            return _precision("fp32", f"{sm} has no fp16 tensor cores")
        return _precision("fp16", f"{sm} has fp16 tensor cores and no native bf16")
    if name == "bf16" and not native_bf16:
        return _precision("bf16", f"asked for; {sm} only emulates bf16, which is slow: fp16 is native")
    return _precision(name, f"asked for, on {sm}")


def _precision(name: str, reason: str) -> Precision:
    return Precision(name, _DTYPES[name], loss_scaling=name == "fp16", reason=reason)
