"""Where a run's files are and what it continues from."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from titan_pretrain.atomic import write_file
from titan_pretrain.config.dump import difference
from titan_pretrain.config.run_folder import (
    CHECKPOINTS,
    RUN_DIR_VARIABLE,
    latest_run_folder,
    new_run_folder,
    newest_checkpoint,
    unwritable_run_folder,
)
from titan_pretrain.config.sections import TrainConfig
from titan_pretrain.errors import UsageError

__all__ = ["Start", "changed_function", "changed_options", "find_start"]

_ELASTIC_JOB = ".elastic-job"
_SHAPE = ("name", "dim", "n_layers", "n_heads", "n_kv_heads", "ffn_dim", "vocab_size", "tied_embeddings")
"""Model options without which a checkpoint's weights have no meaning; others may change on a resume."""
_FUNCTION = ("rope_theta", "rope_scaling", "norm_eps")
"""Model options with which the same weights compute something else."""


@dataclass(frozen=True)
class Start:
    """A run folder, and the checkpoint to continue from if there is one.

    Attributes:
        made_here: whether this process has just made the folder, and so removes it if nothing
            comes of the run.
    """

    run_dir: Path
    checkpoint: Path | None
    made_here: bool = False


def find_start(config: TrainConfig, resume: str | None, attempt: int) -> Start:
    """Decide the run folder and the checkpoint.

    Args:
        config: names the folder of a new run.
        resume: ``auto`` continues the newest run of that name, or starts one if there is none; a
            run folder is continued; a checkpoint folder is continued if it is its run's newest, and
            otherwise starts a new run from there, so that nothing newer is overwritten.
        attempt: how often an elastic agent restarted the ranks; after a restart the run continues
            in its own folder.

    Raises:
        UsageError: ``resume`` names nothing that can be continued.
    """
    own = _own_folder(config) if attempt > 0 else None
    if own is None:
        begin = _first_start(config, resume)
        _leave_mark(begin.run_dir)
        return begin
    checkpoint = newest_checkpoint(own)
    if checkpoint is None and resume is not None:  # nothing saved before the restart: begin as before
        checkpoint = _first_start(config, resume).checkpoint
    return Start(own, checkpoint)


def _first_start(config: TrainConfig, resume: str | None) -> Start:
    if resume is None:
        return _new_start(config, None)
    if resume != "auto":
        return _from_path(config, Path(resume).expanduser())
    latest = latest_run_folder(config)
    return _from_path(config, latest) if latest else _new_start(config, None)


def changed_options(saved: Mapping[str, Any], config: TrainConfig) -> list[str]:
    """Lines that name the options set otherwise than when the checkpoint was saved, warnings first.

    Args:
        saved: the config stored in the checkpoint.
        config: the config in force.
    """
    try:
        changes = difference(TrainConfig.model_validate(saved), config)
    except ValidationError:  # written by another version
        return []
    shown = [
        f"{name} {old!r} -> {new!r}"
        for name, (old, new) in changes.items()
        if not name.startswith(tuple(f"model.{key}" for key in _FUNCTION))
    ]
    warnings = changed_function(saved, config)
    return warnings + ([f"changed since that checkpoint: {', '.join(shown)}"] if shown else [])


def changed_function(saved: Mapping[str, Any], config: TrainConfig) -> list[str]:
    """A warning for each option that makes another function of the checkpoint's weights.

    It is no error: training for a longer context raises ``model.rope_theta`` on purpose.

    Args:
        saved: the config stored in the checkpoint.
        config: the config in force.
    """
    model, ours = saved.get("model", {}), config.model.model_dump(mode="json")
    return [
        f"warning: model.{key} {model[key]!r} -> {ours[key]!r}: the weights were trained with the former, so "
        "the loss rises at first; unless that is meant (for a longer context, say), stop and set it back"
        for key in _FUNCTION
        if key in model and model[key] != ours[key]
    ]


def _from_path(config: TrainConfig, path: Path) -> Start:
    if (path / CHECKPOINTS).is_dir():
        checkpoint = newest_checkpoint(path)
        if checkpoint is None:
            raise UsageError(f"--resume ({path}) has no complete checkpoint", hint="start without --resume")
        _refuse_other_model(config, checkpoint)
        return Start(path, checkpoint)
    if (path / "manifest.json").is_file():
        _refuse_other_model(config, path)
        run_dir = path.resolve().parent.parent
        if path.resolve().parent.name == CHECKPOINTS and newest_checkpoint(run_dir) == path.resolve():
            return Start(run_dir, path)
        return _new_start(config, path)
    raise UsageError(
        f"--resume ({path}) is neither a run folder nor a checkpoint",
        hint="give auto, a folder like runs/NAME-TIME, or one like runs/NAME-TIME/checkpoints/step-00000100",
    )


def _refuse_other_model(config: TrainConfig, checkpoint: Path) -> None:
    """Name the options in which the models differ, before the weights are found not to fit."""
    from titan_parallel.checkpoint import CheckpointReader  # torch takes seconds
    from titan_parallel.errors import CheckpointError

    try:
        saved = CheckpointReader(checkpoint).trainer()["config"]["model"]
    except (CheckpointError, KeyError, TypeError):
        return  # loading it tells what is wrong
    ours = config.model.model_dump()
    changes = [
        f"model.{key} {saved.get(key)!r} -> {ours[key]!r}" for key in _SHAPE if saved.get(key) != ours[key]
    ]
    if changes:
        raise UsageError(
            f"--resume ({checkpoint}) holds another model: {', '.join(changes)}",
            hint="set these options back, or start a new run without --resume",
        )


def _new_start(config: TrainConfig, checkpoint: Path | None) -> Start:
    """In the folder the launcher made, or a new one."""
    given = os.environ.get(RUN_DIR_VARIABLE)
    if given:
        return Start(Path(given), checkpoint)
    return Start(new_run_folder(config), checkpoint, made_here=True)


def _elastic_job() -> str | None:
    """What tells this elastic job from others: torchrun's run id is often just "none"."""
    run_id = os.environ.get("TORCHELASTIC_RUN_ID")
    return None if run_id is None else f"{run_id} {socket.gethostname()} {os.getppid()}"


def _leave_mark(folder: Path) -> None:
    job = _elastic_job()
    if job is None:
        return
    try:
        write_file(folder / _ELASTIC_JOB, job)
    except OSError as error:
        raise unwritable_run_folder(folder, error) from None


def _own_folder(config: TrainConfig) -> Path | None:
    """The folder this elastic job made or continued before its restart."""
    given = os.environ.get(RUN_DIR_VARIABLE)
    if given:
        return Path(given)
    job = _elastic_job()
    marks = Path(config.run.dir).expanduser().glob(f"*/{_ELASTIC_JOB}")
    return next((mark.parent for mark in marks if mark.read_text() == job), None)
