"""Run folders: ``<run.dir>/<run.name>-<YYYYmmdd-HHMMSS>``, one per run, found again for a resume."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from itertools import count
from pathlib import Path

from titan_pretrain.config.sections import TrainConfig
from titan_pretrain.errors import PretrainError
from titan_pretrain.metrics.jsonl import FILE_NAME as METRICS

__all__ = [
    "CHECKPOINTS",
    "RUN_DIR_VARIABLE",
    "discard_unstarted",
    "latest_run_folder",
    "new_run_folder",
    "newest_checkpoint",
    "newest_run",
    "unwritable_run_folder",
]

RUN_DIR_VARIABLE = "TITAN_RUN_DIR"
"""Environment variable that tells all ranks, and their restarts, the one run folder."""

CHECKPOINTS = "checkpoints"
"""Folder of a run folder; a complete checkpoint in it is called ``step-<number>``."""

PROBE_BYTES = 4096


def new_run_folder(config: TrainConfig) -> Path:
    """Make a folder of this run's own; two runs that start in the same second get two.

    Raises:
        PretrainError: ``run.dir`` can't be written, or its disk is full.
    """
    stem = f"{config.run.name}-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    parent = Path(config.run.dir).expanduser()
    try:
        parent.mkdir(parents=True, exist_ok=True)
        folder = next(_make_first_free(parent, stem))
        _probe(folder)
    except OSError as error:
        text = f"run.dir ({config.run.dir}): no run folder can be made there: {error.strerror or error}"
        raise PretrainError(text, hint="free the disk or set another run.dir") from None
    return folder


def unwritable_run_folder(folder: Path, error: OSError) -> PretrainError:
    """What to tell the user about a run folder that takes no files."""
    return PretrainError(
        f"run folder ({folder}) can't be written: {error.strerror or error}",
        hint="make room or mend the permissions, or set another run.dir",
    )


def discard_unstarted(folder: Path) -> None:
    """Remove the folder of a run that failed before its first step.

    Whatever a user may still want keeps it: a checkpoint, a logged step, a filed traceback.
    """
    with suppress(OSError):  # the failure that led here is what the user must read
        if newest_checkpoint(folder) or any(folder.glob("traceback-*")) or _is_filled(folder / METRICS):
            return
        shutil.rmtree(folder)


def _is_filled(file: Path) -> bool:
    return file.is_file() and file.stat().st_size > 0


def latest_run_folder(config: TrainConfig) -> Path | None:
    """The newest folder of ``run.name`` that holds a checkpoint; None when there is none."""
    return newest_run(Path(config.run.dir).expanduser(), config.run.name)


def newest_run(parent: Path, name: str | None = None) -> Path | None:
    """The newest run folder in ``parent`` that holds a checkpoint.

    Args:
        parent: a ``run.dir``.
        name: only runs of this ``run.name``; default any.
    """
    pattern = re.compile(rf"{re.escape(name) if name else '.+'}-(\d{{8}}-\d{{6}})(?:-(\d+))?")
    found = []
    with suppress(OSError):  # no such folder, or one that can't be read: nothing to find
        for folder in parent.iterdir():
            match = pattern.fullmatch(folder.name)
            if match and newest_checkpoint(folder) is not None:
                found.append((match[1], int(match[2] or 1), folder))
    return max(found)[2] if found else None


def newest_checkpoint(run_folder: Path) -> Path | None:
    """The newest complete checkpoint of a run; None when there is none."""
    manifests = (run_folder / CHECKPOINTS).glob("step-*/manifest.json")
    return max((file.parent for file in manifests), key=_step, default=None)


def _step(checkpoint: Path) -> int:
    digits = checkpoint.name.removeprefix("step-")
    return int(digits) if digits.isdigit() else -1


def _make_first_free(parent: Path, stem: str) -> Iterator[Path]:
    for number in count(1):
        folder = parent / (stem if number == 1 else f"{stem}-{number}")
        with suppress(FileExistsError):  # mkdir is the lock: only one process makes a folder
            folder.mkdir()
            yield folder


def _probe(folder: Path) -> None:
    """Fail now if the disk is full: a folder alone fits on a full disk."""
    probe = folder / ".probe"
    try:
        with probe.open("wb") as file:
            file.write(b"\0" * PROBE_BYTES)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        probe.unlink(missing_ok=True)
        folder.rmdir()
        raise
    probe.unlink()
