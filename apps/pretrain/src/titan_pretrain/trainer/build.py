"""From a config to a sharded model with weights."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from titan_parallel.activation import checkpoint_blocks
from titan_parallel.checkpoint import CheckpointManager, load_safetensors
from titan_parallel.fsdp import shard_model
from titan_parallel.mesh import ParallelDims
from titan_parallel.precision import Precision
from titan_pretrain.config.sections import TrainConfig
from titan_pretrain.errors import UsageError
from titan_pretrain.export import find_checkpoint
from titan_pretrain.models.llama3 import Llama3
from titan_pretrain.models.llama3.hf import hf_names, read_hf_config
from titan_pretrain.trainer.nonfinite import check_finite
from titan_pretrain.trainer.resume import changed_function

__all__ = ["build_model", "load_initial_weights"]


def build_model(
    config: TrainConfig, dims: ParallelDims, precision: Precision, device: torch.device
) -> Llama3:
    """The model, sharded over the world, on ``device``, with weights from the config's seed.

    It is built without memory on the meta device, so a rank only ever holds its own shard.
    """
    with torch.device("meta"):
        model = Llama3(config.model)
    # From the inside out: the compiled code, its recomputation, FSDP's hooks, which can't be compiled.
    if config.compile.enable:
        for block in model.layers.values():
            block.forward = torch.compile(block.forward, fullgraph=True)
    if config.activation.checkpoint != "none":
        every = config.activation.every_k if config.activation.checkpoint == "every_k" else 1
        checkpoint_blocks(model.layers.values(), every=every)
    shard_model(
        model,
        model.layers.values(),
        dims.build(device.type),
        precision=precision,
        reshard_after_forward=config.parallel.reshard_after_forward,
    )
    model.to_empty(device=device)
    model.init_weights(config.training.seed)
    return model


def load_initial_weights(model: nn.Module, config: TrainConfig) -> list[str]:
    """Replace the weights by those of ``checkpoint.init_from``, if given.

    Returns:
        Notes for the log.
    """
    source = config.checkpoint.init_from
    if source is None:
        return []
    if source.startswith("hf:"):
        folder = Path(source.removeprefix("hf:")).expanduser()
        _check_same_shape(config, folder)
        load_safetensors(folder, model, hf_names(config.model))
        return [f"weights from {folder}"]
    path = find_checkpoint(Path(source).expanduser())
    manager = CheckpointManager(path.parent, keep=1, read_only=True)
    loaded = manager.load(path, model=model)
    check_finite(f"checkpoint.init_from ({loaded.path})", model)
    warnings = changed_function(loaded.trainer["config"], config)
    return [f"weights from {loaded.path} (step {loaded.step})", *warnings, *loaded.notes]


def _check_same_shape(config: TrainConfig, folder: Path) -> None:
    theirs = read_hf_config(folder)
    ours = config.model.model_dump()
    differing = [
        f"{key} {ours[key]!r} here, {value!r} there" for key, value in theirs.items() if ours[key] != value
    ]
    if differing:
        raise UsageError(
            f"checkpoint.init_from ({folder}) holds another model: {'; '.join(differing)}",
            hint="set these model options to the folder's values; for another rope_theta on purpose (for a "
            "longer context) change it in the folder's config.json too",
        )
