"""Hugging Face folders of safetensors files, for any model whose names map one to one."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from titan_parallel.checkpoint import collective, layout
from titan_parallel.checkpoint.hf_load import INDEX, LoadedWeights, load_safetensors
from titan_parallel.errors import CheckpointWriteError

__all__ = ["LoadedWeights", "export_safetensors", "load_safetensors"]


def export_safetensors(
    tensors: Iterable[tuple[str, Callable[[], Tensor]]],
    out: Path,
    *,
    max_shard_bytes: int = 5_000_000_000,
    metadata: Mapping[str, str] | None = None,
    extras: Callable[[Path], None] | None = None,
) -> Path:
    """Write a folder that ``transformers`` loads; run it on one process.

    The folder appears under its name when it is complete; an empty one is filled then, for it may be the
    current folder or a file system of its own.  Memory holds about ``max_shard_bytes``.

    Args:
        tensors: name in the folder and a function that reads the tensor, called once and in order.
        out: new or empty folder.
        max_shard_bytes: a file holds no more, unless a single tensor is larger.
        metadata: entries for each file's header besides ``format``.
        extras: writes further files (``config.json``, tokenizer) into the folder it is given.

    Returns:
        ``out``.

    Raises:
        CheckpointWriteError: ``out`` isn't empty, or it can't be written (a full disk, say).
    """
    out = Path(out)
    _refuse_occupied(out)
    target = out.resolve()  # a link stays one
    partial = _partial(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(target)
        partial.mkdir()
        _Shards(partial, max_shard_bytes, {"format": "pt", **(metadata or {})}).write(tensors)
        if extras is not None:
            extras(partial)
        _publish(partial, target)
    except (OSError, SafetensorError) as error:
        free = shutil.disk_usage(_existing(out)).free
        raise CheckpointWriteError(
            f"export folder ({out}) could not be written: {collective.describe(error)} "
            f"({free / 1e6:.1f} MB free)"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return out


def _refuse_occupied(out: Path) -> None:
    if out.is_dir() and not any(out.iterdir()):
        return
    if out.exists():
        kind = "is not empty" if out.is_dir() else "is a file"
        raise CheckpointWriteError(f"export folder ({out}) {kind}: name a new one or remove it first")


def _partial(out: Path) -> Path:
    suffix = f"writing-{socket.gethostname()}-{os.getpid()}"
    return out / f".{suffix}" if out.is_dir() else out.with_name(f".{out.name}.{suffix}")


def _remove_leftovers(out: Path) -> None:
    """Remove what killed exports to ``out`` from this machine left behind."""
    prefix = f".{out.name}.writing-{socket.gethostname()}-"
    for path in out.parent.iterdir():
        process = path.name.removeprefix(prefix)
        if path.name.startswith(prefix) and process.isdigit() and not _alive(int(process)):
            shutil.rmtree(path, ignore_errors=True)


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _existing(path: Path) -> Path:
    return next(parent for parent in path.absolute().parents if parent.exists())


def _publish(partial: Path, out: Path) -> None:
    for path in partial.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    layout.sync(partial)
    if out.is_dir():
        for path in sorted(partial.iterdir()):
            path.rename(out / path.name)
        partial.rmdir()
        layout.sync(out)
    else:
        partial.rename(out)
        layout.sync(out.parent)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


class _Shards:
    """Files of at most a given size, and the index over them as ``transformers`` writes it."""

    def __init__(self, folder: Path, max_bytes: int, metadata: dict[str, str]) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._metadata = metadata
        self._pending: dict[str, Tensor] = {}
        self._pending_bytes = 0
        self._shards: list[list[str]] = []  # tensor names by file
        self._bytes = self._parameters = 0

    def write(self, tensors: Iterable[tuple[str, Callable[[], Tensor]]]) -> None:
        """Stream the tensors into files, then name these and write the index."""
        for name, read in tensors:
            self._add(name, read().detach().cpu().contiguous())
        self._flush()
        self._finish()

    def _add(self, name: str, tensor: Tensor) -> None:
        if self._pending and self._pending_bytes + tensor.nbytes > self._max_bytes:
            self._flush()
        # safetensors refuses tensors that share memory, as views of one storage do.
        shares = tensor.untyped_storage().nbytes() != tensor.nbytes
        self._pending[name] = tensor.clone() if shares else tensor
        self._pending_bytes += tensor.nbytes
        self._bytes += tensor.nbytes
        self._parameters += tensor.numel()

    def _flush(self) -> None:
        save_file(self._pending, self._provisional(len(self._shards)), metadata=self._metadata)
        self._shards.append(list(self._pending))
        self._pending, self._pending_bytes = {}, 0

    def _provisional(self, index: int) -> Path:
        return self._folder / f"shard-{index}.safetensors"

    def _finish(self) -> None:
        count = len(self._shards)
        weight_map = {}
        for index, names in enumerate(self._shards):
            final = "model.safetensors" if count == 1 else f"model-{index + 1:05d}-of-{count:05d}.safetensors"
            self._provisional(index).rename(self._folder / final)
            (self._folder / final).chmod(0o666 & ~_umask())  # safetensors writes for the owner only
            weight_map.update(dict.fromkeys(names, final))
        if count > 1:
            totals = {"total_parameters": self._parameters, "total_size": self._bytes}
            content = json.dumps({"metadata": totals, "weight_map": weight_map}, indent=2, sort_keys=True)
            (self._folder / INDEX).write_text(content + "\n")
