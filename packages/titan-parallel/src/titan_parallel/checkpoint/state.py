"""A model's tensors under fully qualified names, and how they compare with a checkpoint's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.nn.parallel import DistributedDataParallel

from titan_parallel.checkpoint.manifest import ParameterRecord
from titan_parallel.errors import CheckpointError

__all__ = ["clean_name", "compare_names", "dtype_name", "dtype_notes", "listed", "model_tensors"]

_WRAPPERS = ("_orig_mod.", "_checkpoint_wrapped_module.")


def clean_name(name: str, model: nn.Module) -> str:
    """Name without the prefixes of torch.compile, activation checkpointing and DDP."""
    if isinstance(model, DistributedDataParallel):
        name = name.removeprefix("module.")
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def _aliases(model: nn.Module) -> set[str]:
    """Names of tied parameters, except the first name of each."""
    seen: set[int] = set()
    aliases = set()
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if id(parameter) in seen:
            aliases.add(clean_name(name, model))
        seen.add(id(parameter))
    return aliases


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by name; they share memory with the model.

    A tied parameter appears once, under its first name.

    Raises:
        CheckpointError: an entry isn't a tensor or has no data yet (meta device).
    """
    aliases = _aliases(model)
    tensors = {}
    for name, value in get_model_state_dict(model).items():
        if not isinstance(value, Tensor):
            raise CheckpointError(f"model state {name} ({type(value).__name__}) must be a tensor")
        if value.is_meta:
            raise CheckpointError(f"parameter {name} is on the meta device: materialise the model first")
        if name not in aliases:
            tensors[name] = value
    return tensors


def dtype_name(dtype: torch.dtype) -> str:
    """``"float32"`` for ``torch.float32``."""
    return str(dtype).removeprefix("torch.")


def listed(names: Sequence[str], limit: int = 5) -> str:
    """The first names and how many there are more: ``a, b and 3 more``."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def compare_names(
    tensors: Mapping[str, Tensor], saved: Mapping[str, tuple[int, ...]], *, unexpected: Sequence[str]
) -> list[str]:
    """Say in words how a model differs from what was saved.

    Args:
        tensors: the model's.
        saved: full shape by name.
        unexpected: saved names that no rank's model has.

    Returns:
        One phrase for each kind of difference; nothing when the model fits.
    """
    missing = [name for name in tensors if name not in saved]
    shapes = [
        f"{name}: saved {list(saved[name])}, model {list(tensor.shape)}"
        for name, tensor in tensors.items()
        if name in saved and tuple(tensor.shape) != tuple(saved[name])
    ]
    problems = []
    if missing:
        problems.append(f"{len(missing)} missing ({listed(missing)})")
    if unexpected:
        problems.append(f"{len(unexpected)} unexpected ({listed(unexpected)})")
    if shapes:
        problems.append(f"{len(shapes)} of another shape ({listed(shapes)})")
    return problems


def dtype_notes(tensors: Mapping[str, Tensor], saved: Mapping[str, ParameterRecord]) -> list[str]:
    """Notes on parameters whose dtype changes on loading, which happens without a word in DCP."""
    changed: dict[tuple[str, str], list[str]] = {}
    for name, tensor in tensors.items():
        if name in saved and saved[name].dtype != dtype_name(tensor.dtype):
            changed.setdefault((saved[name].dtype, dtype_name(tensor.dtype)), []).append(name)
    return [
        f"{len(names)} parameters saved as {old} are loaded as {new} ({listed(names)})"
        for (old, new), names in changed.items()
    ]
