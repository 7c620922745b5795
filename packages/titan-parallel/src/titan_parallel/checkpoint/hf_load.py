"""Reading Hugging Face safetensors folders into a model of any sharding."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from titan_parallel.checkpoint import collective
from titan_parallel.checkpoint.state import compare_names, dtype_name, listed, model_tensors
from titan_parallel.errors import CheckpointCorruptError, CheckpointMismatchError, CheckpointNotFoundError

__all__ = ["INDEX", "LoadedWeights", "load_safetensors"]

INDEX = "model.safetensors.index.json"
_DTYPES = {"BF16": "bfloat16", "BOOL": "bool", "U8": "uint8"} | {
    f"{kind}{bits}": f"{name}{bits}"
    for kind, name, widths in (("F", "float", (16, 32, 64)), ("I", "int", (8, 16, 32, 64)))
    for bits in widths
}


@dataclass(frozen=True)
class LoadedWeights:
    """What was loaded.

    Attributes:
        names: the model's names that were filled.
        absent: names that may be absent and were; the caller ties or initialises them.
        notes: dtypes that were cast.
    """

    names: list[str]
    absent: list[str]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Stored:
    """A tensor in a safetensors file."""

    file: Path
    name: str
    shape: tuple[int, ...]
    dtype: str


def load_safetensors(
    folder: Path,
    model: nn.Module,
    mapping: Mapping[str, str],
    *,
    dtype: torch.dtype | None = None,
    may_be_absent: Collection[str] = (),
    ignore: Collection[str] = (),
) -> LoadedWeights:
    """Fill ``model`` from a folder of safetensors files, each rank reading its slices only; collective.

    Args:
        folder: holds ``model.safetensors`` or its shards and index.
        model: materialised, any sharding; names and shapes are compared before it is touched.
        mapping: name in the folder by the model's name; two names may map to one (tied embeddings).
        dtype: rounds the values to this dtype on their way into the parameters; None doesn't.
        may_be_absent: the model's names that the folder may lack.
        ignore: patterns (``*.inv_freq``) of names in the folder that the model has no use for.

    Raises:
        CheckpointNotFoundError: no such folder, or none of safetensors files.
        CheckpointCorruptError: a file is missing, truncated or no safetensors file, or holds values
            that are not finite.
        CheckpointMismatchError: the weights of another model, or values that overflow the
            parameter's dtype (bf16 weights in an fp16 parameter, say).
    """
    folder = Path(folder)

    def plan() -> tuple[dict[str, Tensor], dict[str, _Stored], list[str]]:
        tensors, stored = model_tensors(model), _scan(folder)
        found = {name: stored[mapping[name]] for name in tensors if mapping.get(name) in stored}
        absent = [name for name in tensors if name in may_be_absent and name not in found]
        _compare(folder, tensors, found, absent, _unexpected(stored, mapping, ignore))
        return tensors, found, absent

    doing = f"loading {folder}"
    tensors, found, absent = collective.together(plan, doing=doing, error=CheckpointCorruptError)
    of_ranks = collective.gather(
        lambda: _copy_all(tensors, found, dtype), doing=doing, error=CheckpointCorruptError
    )
    _refuse_bad(folder, of_ranks)
    return LoadedWeights(list(found), absent, _cast_notes(tensors, found))


def _scan(folder: Path) -> dict[str, _Stored]:
    """Every tensor of the folder's files, by name, from the headers."""
    stored: dict[str, _Stored] = {}
    for file in _files(folder):
        stored |= _scan_file(file)
    return stored


def _scan_file(file: Path) -> dict[str, _Stored]:
    try:
        with safe_open(file, framework="pt") as source:
            headers = {name: source.get_slice(name) for name in source.keys()}  # noqa: SIM118 -- no mapping
            return {n: _Stored(file, n, tuple(h.get_shape()), h.get_dtype()) for n, h in headers.items()}
    except FileNotFoundError:
        raise CheckpointCorruptError(f"{file} is missing") from None
    except (OSError, SafetensorError) as error:
        raise CheckpointCorruptError(f"{file} can't be read as safetensors: {error}") from error


def _files(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise CheckpointNotFoundError(f"weights folder ({folder}) doesn't exist")
    index = folder / INDEX
    if index.exists():
        try:
            return sorted({folder / name for name in json.loads(index.read_text())["weight_map"].values()})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointCorruptError(f"{index} is damaged: {collective.describe(error)}") from error
    if (folder / "model.safetensors").exists():
        return [folder / "model.safetensors"]
    files = sorted(folder.glob("*.safetensors"))
    if files:
        return files
    pickles = sorted(path.name for pattern in ("*.bin", "*.pth", "*.pt") for path in folder.glob(pattern))
    if pickles:
        raise CheckpointNotFoundError(
            f"weights folder ({folder}) has no safetensors files, only pickles ({listed(pickles)}), which "
            "can run code when opened; convert it with transformers' save_pretrained(safe_serialization=True)"
        )
    raise CheckpointNotFoundError(f"weights folder ({folder}) has no safetensors files")


def _unexpected(
    stored: Mapping[str, _Stored], mapping: Mapping[str, str], ignore: Collection[str]
) -> list[str]:
    wanted = set(mapping.values())
    extra = (name for name in stored if name not in wanted)
    return [name for name in extra if not any(fnmatch.fnmatch(name, pattern) for pattern in ignore)]


def _compare(
    folder: Path,
    tensors: Mapping[str, Tensor],
    found: Mapping[str, _Stored],
    absent: Collection[str],
    unexpected: list[str],
) -> None:
    needed = {name: tensor for name, tensor in tensors.items() if name not in absent}
    shapes = {name: place.shape for name, place in found.items()}
    problems = compare_names(needed, shapes, unexpected=unexpected)
    if problems:
        raise CheckpointMismatchError(
            f"weights of another model ({folder}): {'; '.join(problems)}; "
            "use the model config that belongs to them"
        )


def _copy_all(
    tensors: Mapping[str, Tensor], found: Mapping[str, _Stored], dtype: torch.dtype | None
) -> tuple[list[str], list[str]]:
    """Copy this rank's parts.

    Returns:
        What is not finite in the files, and what no longer is as the parameter's dtype.
    """
    stored, overflowed = [], []
    for file in sorted({place.file for place in found.values()}):
        with safe_open(file, framework="pt") as source:
            for name, place in found.items():
                if place.file != file:
                    continue
                value, local = _copy(source.get_slice(place.name), tensors[name], dtype)
                if torch.isfinite(local).all():
                    continue
                if torch.isfinite(value.float()).all():
                    overflowed.append(f"{name} as {dtype_name(dtype or tensors[name].dtype)}")
                else:
                    stored.append(f"{place.name} in {file.name}")
    return stored, overflowed


def _refuse_bad(folder: Path, of_ranks: list[tuple[list[str], list[str]]]) -> None:
    """Refuse what can't be trained on; several ranks may name one tensor, of which each has a part."""
    stored, overflowed = (
        list(dict.fromkeys(name for names in of_kind for name in names))
        for of_kind in zip(*of_ranks, strict=True)
    )
    if stored:
        raise CheckpointCorruptError(
            f"weights in {folder} are not finite (NaN or infinity): {listed(stored)}; the file is damaged, "
            "or the training that wrote it had diverged: fetch it again, or take an earlier checkpoint of it"
        )
    if overflowed:
        raise CheckpointMismatchError(
            f"weights in {folder} are too large for the parameter: {listed(overflowed)}; "
            "use float32 parameters"
        )


@torch.no_grad()
def _copy(source: Any, target: Tensor, dtype: torch.dtype | None) -> tuple[Tensor, Tensor]:
    """Copy this rank's part; returns it as stored and as copied."""
    local = target
    part: tuple[slice, ...] = tuple(slice(0, size) for size in target.shape)
    if isinstance(target, DTensor):
        local = target.to_local()
        sizes, offsets = compute_local_shape_and_global_offset(
            target.shape, target.device_mesh, target.placements
        )
        part = tuple(slice(start, start + size) for start, size in zip(offsets, sizes, strict=True))
    value: Tensor = source[part]
    local.copy_(value if dtype is None else value.to(dtype))
    return value, local


def _cast_notes(tensors: Mapping[str, Tensor], found: Mapping[str, _Stored]) -> list[str]:
    casts: dict[tuple[str, str], int] = {}
    for name, place in found.items():
        old, new = _DTYPES.get(place.dtype, place.dtype), dtype_name(tensors[name].dtype)
        if old != new:
            casts[old, new] = casts.get((old, new), 0) + 1
    return [f"{count} tensors stored as {old} are loaded as {new}" for (old, new), count in casts.items()]
