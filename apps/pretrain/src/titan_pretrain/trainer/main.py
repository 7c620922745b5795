"""A whole run on this rank: prepare, train, save, report."""

from __future__ import annotations

import os
from pathlib import Path

import torch
import torch.distributed as dist

from titan_parallel.mesh import ParallelDims
from titan_parallel.precision import resolve_precision
from titan_parallel.runtime import Runtime, start
from titan_pretrain.config.sections import TrainConfig
from titan_pretrain.data import build_source
from titan_pretrain.metrics import console
from titan_pretrain.metrics.environment import write_environment
from titan_pretrain.preflight import preflight
from titan_pretrain.trainer.build import build_model, load_initial_weights
from titan_pretrain.trainer.loop import Loop
from titan_pretrain.trainer.resume import Start, find_start
from titan_pretrain.trainer.state import RunState

__all__ = ["run"]


def run(config: TrainConfig, *, resume: str | None = None) -> int:
    """Train as ``config`` says, on this rank of the world.

    Args:
        config: a validated config.
        resume: ``auto``, a run folder, a checkpoint folder, or None for a new run.

    Returns:
        The process' exit code.

    Raises:
        PretrainError: what the user should read; nothing that was saved is lost.
    """
    if "RANK" not in os.environ:
        preflight(config, resume)
    _prepare_torch(config)
    runtime = start(timeout_s=config.run.comm_timeout_s)
    begin = _agree_on_start(config, resume, runtime)
    state = _build_state(config, runtime, begin.run_dir)
    if begin.checkpoint is not None:
        loaded = state.load(begin.checkpoint)
        _say_resumed(runtime, begin, loaded)
    else:
        for note in load_initial_weights(state.model, config):
            console.info(runtime, note)
    return Loop(config, runtime, begin.run_dir, state).run()


def _prepare_torch(config: TrainConfig) -> None:
    torch.manual_seed(config.training.seed)
    torch.set_float32_matmul_precision("high")
    if config.training.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)


def _agree_on_start(config: TrainConfig, resume: str | None, runtime: Runtime) -> Start:
    """Rank 0 decides where the run's files are and what it resumes from; the others follow."""
    box: list[Start | None] = [find_start(config, resume, runtime.attempt) if runtime.is_main else None]
    dist.broadcast_object_list(box, src=0)
    begin = box[0]
    if begin is None:
        raise RuntimeError("rank 0 sent no starting point")
    if runtime.is_main:
        begin.write_config(config)
        write_environment(begin.run_dir)
    return begin


def _build_state(config: TrainConfig, runtime: Runtime, run_dir: Path) -> RunState:
    dims = ParallelDims.resolve(
        runtime.world_size,
        dp_replicate=config.parallel.dp_replicate,
        dp_shard=config.parallel.dp_shard,
    )
    precision = resolve_precision(config.training.precision, runtime.device)
    console.info(runtime, f"precision {precision.name}: {precision.reason}")
    source = build_source(config.data, seed=config.training.seed)
    tokenizer = _shared_tokenizer(config, source, run_dir, runtime)
    model = build_model(config, dims, precision, runtime.device)
    return RunState.create(config, runtime, dims, precision, model, source, tokenizer, run_dir)
