"""A whole run on this rank: prepare, train, save, report."""

from __future__ import annotations

import os
from functools import partial

import torch

from titan_parallel.runtime import Runtime, on_main, start
from titan_pretrain.cli.messages import note
from titan_pretrain.config.run_folder import discard_unstarted
from titan_pretrain.config.sections import TrainConfig
from titan_pretrain.trainer.build import load_initial_weights
from titan_pretrain.trainer.failures import explain
from titan_pretrain.trainer.loop import Loop
from titan_pretrain.trainer.nonfinite import check_finite
from titan_pretrain.trainer.observe import Observer
from titan_pretrain.trainer.resume import Start, changed_options, find_start
from titan_pretrain.trainer.setup import Setup
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
        TitanParallelError: likewise, from the layer below.
    """
    _prepare_torch(config)
    runtime = start(timeout_s=config.run.comm_timeout_s)
    try:
        return _run(config, resume, runtime)
    except RuntimeError as error:
        known = explain(error, config, runtime)
        if known is None:
            raise
        raise known from error


def _run(config: TrainConfig, resume: str | None, runtime: Runtime) -> int:
    begin = on_main(partial(find_start, config, resume, runtime.attempt))
    try:
        return _train(config, runtime, begin)
    except BaseException:
        if begin.made_here and runtime.is_main:
            discard_unstarted(begin.run_dir)
        raise


def _train(config: TrainConfig, runtime: Runtime, begin: Start) -> int:
    setup = Setup.create(config, runtime, begin.run_dir, say=note)
    with Observer(setup) as observer:
        state = setup.build_state()
        notes = _load(state, config, begin)
        stepper = setup.build_stepper(state)
        loop = Loop(setup, state, stepper, observer, setup.build_validator(state, stepper))
        observer.start(state, notes)
        code = loop.run()
        observer.finish(state, code)
    return code


def _prepare_torch(config: TrainConfig) -> None:
    torch.manual_seed(config.training.seed)
    torch.set_float32_matmul_precision("high")
    if config.training.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)


def _load(state: RunState, config: TrainConfig, begin: Start) -> list[str]:
    """Take up the checkpoint or the initial weights; returns notes for the user."""
    if begin.checkpoint is None:
        return load_initial_weights(state.model, config)
    loaded = state.load(begin.checkpoint, on_corrupt=config.checkpoint.on_corrupt)
    check_finite(f"checkpoint {loaded.path}", state.model, state.optimizer)
    notes = [f"resumed from {loaded.path} (step {loaded.step})", *loaded.notes]
    steps = config.training.steps
    if loaded.step >= steps:
        more = f"--set training.steps={loaded.step + steps}"
        notes.append(f"nothing to do: training.steps ({steps}) are done; to train on, raise it: {more}")
    return notes + changed_options(loaded.trainer["config"], config)
