"""Exceptions of every kind: lines on stderr, exit codes, and no traceback but for those who ask."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from titan_parallel.errors import CheckpointCorruptError
from titan_pretrain.errors import DataError, TrainingError, UsageError

Run = Callable[..., Any]
TRAIN = ("--config", "llama3_debug")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (
            TrainingError("the disk is full", hint="free some"),
            1,
            "error: the disk is full\n  hint: free some\n",
        ),
        (DataError("two\nlines"), 1, "error: two lines\n"),
        (UsageError("--resume (x) is nothing"), 2, "error: --resume (x) is nothing\n"),
        (CheckpointCorruptError("shard 3 is truncated"), 1, "error: shard 3 is truncated\n"),
        (KeyboardInterrupt(), 130, "\nstopped by Ctrl-C\n"),
        (SystemExit(9), 9, ""),
    ],
)
def test_known_errors(run: Run, trainer: Any, error: BaseException, code: int, message: str) -> None:
    trainer.outcome = error
    result = run(*TRAIN)
    assert (result.code, result.err, result.out) == (code, message, "")


@pytest.mark.parametrize("error", [KeyError("x"), RuntimeError("several\nlines"), EOFError(), MemoryError()])
def test_a_bug_is_one_line_and_a_file(run: Run, trainer: Any, error: Exception) -> None:
    trainer.outcome = error
    result = run(*TRAIN)
    assert result.code == 1
    first, second = result.err.splitlines()[-2:]
    assert first.startswith(f"error: this is a bug of titan-pretrain: {type(error).__name__}")
    assert "(conftest.py:" in first
    (file,) = Path("temporary").iterdir()
    assert second.startswith(f"  hint: please report it with {file.absolute()}; TITAN_TRACEBACK=1 ")
    assert "Traceback (most recent call last)" in file.read_text()
    assert "Traceback" not in result.err


def test_a_bug_in_a_run_is_filed_in_its_folder(
    run: Run, trainer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("run").mkdir()
    monkeypatch.setenv("TITAN_RUN_DIR", "run")
    trainer.outcome = KeyError("x")
    assert "run/traceback-rank0.txt" in run(*TRAIN).err
    assert "KeyError" in Path("run/traceback-rank0.txt").read_text()


def test_traceback_on_request(run: Run, trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TITAN_TRACEBACK", "1")
    trainer.outcome = KeyError("x")
    result = run(*TRAIN)
    assert "Traceback (most recent call last)" in result.err
    assert list(Path("temporary").iterdir()) == []


def test_a_bug_with_nowhere_to_file_it(run: Run, trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    trainer.outcome = KeyError("x")
    assert "Traceback (most recent call last)" in run(*TRAIN).err
