"""Running the command line in the test's process, with a stand-in for the trainer."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from titan_pretrain.cli.app import main

LAUNCHER_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_ERROR_FILE")


@dataclass
class Result:
    """What a command line did."""

    code: int
    out: str
    err: str


@dataclass
class Trainer:
    """Stands in for ``titan_pretrain.trainer.main``: remembers its calls, and does as told."""

    calls: list[dict[str, Any]] = field(default_factory=list)
    outcome: int | BaseException = 0

    def run(self, config: Any, **arguments: Any) -> int:
        self.calls.append({"config": config, **arguments})
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


@pytest.fixture(autouse=True)
def _clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "temporary").mkdir()
    for name in (*LAUNCHER_VARIABLES, "TITAN_RUN_DIR", "TITAN_TRACEBACK", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> Trainer:
    stand_in = Trainer()
    module = types.ModuleType("titan_pretrain.trainer.main")
    module.run = stand_in.run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return stand_in


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Run a command line; its exit code, stdout and stderr."""

    def command(*arguments: str) -> Result:
        capsys.readouterr()
        code = main(arguments)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return command
