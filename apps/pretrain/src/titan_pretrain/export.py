"""A checkpoint as a folder that ``transformers`` loads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from torch import Tensor

from titan_parallel.checkpoint import CheckpointReader, export_safetensors
from titan_pretrain.config.run_folder import newest_checkpoint
from titan_pretrain.config.sections import TrainConfig
from titan_pretrain.errors import UsageError
from titan_pretrain.models.llama3.hf import hf_config, hf_names
from titan_pretrain.tokenizer import Tokenizer, load_tokenizer

__all__ = ["export_hf", "find_checkpoint"]


def export_hf(checkpoint: Path, out: Path) -> Path:
    """Write weights, config.json and tokenizer of ``checkpoint`` to ``out``.

    Args:
        checkpoint: a checkpoint folder, or a run folder, whose newest one is taken.
        out: new or empty folder.

    Returns:
        The checkpoint that was exported.

    Raises:
        UsageError: there is no checkpoint, or its tokenizer is gone.
        CheckpointError: the checkpoint is damaged, or ``out`` can't be written.
    """
    checkpoint = find_checkpoint(checkpoint)
    reader = CheckpointReader(checkpoint)
    config = TrainConfig.model_validate(reader.trainer()["config"])
    tokenizer = _tokenizer(checkpoint, config)
    export_safetensors(
        _tensors(reader, config),
        out,
        metadata={"titan_step": str(reader.step)},
        extras=partial(_write_extras, config, tokenizer),
    )
    return checkpoint


def find_checkpoint(path: Path) -> Path:
    """``path`` itself, or the newest checkpoint of the run folder ``path``."""
    if (path / "manifest.json").is_file():
        return path
    newest = newest_checkpoint(path)
    if newest is None:
        raise UsageError(
            f"({path}) is neither a checkpoint nor a run folder with one",
            hint="give a folder like runs/NAME-TIME or runs/NAME-TIME/checkpoints/step-00000100",
        )
    return newest


def _tensors(reader: CheckpointReader, config: TrainConfig) -> Iterator[tuple[str, Callable[[], Tensor]]]:
    for ours, theirs in hf_names(config.model).items():
        yield theirs, partial(reader.read_tensor, ours)


def _tokenizer(checkpoint: Path, config: TrainConfig) -> Tokenizer:
    own = checkpoint.resolve().parent.parent / "tokenizer"
    source = own if own.exists() else config.tokenizer.path
    if source is None:
        raise UsageError(
            f"the tokenizer of {checkpoint} is gone: {own} does not exist",
            hint="keep the checkpoint in its run folder, or copy the folder `tokenizer` along",
        )
    return load_tokenizer(source)


def _write_extras(config: TrainConfig, tokenizer: Tokenizer, folder: Path) -> None:
    described = hf_config(
        config.model,
        max_seq_len=config.training.seq_len,
        bos_id=tokenizer.bos_id,
        eos_id=tokenizer.eos_id,
    )
    (folder / "config.json").write_text(json.dumps(described, indent=2) + "\n")
    tokenizer.save(folder)
