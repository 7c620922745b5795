"""outcome.json: how a run ended.  It is absent while the run goes on, and when the run was killed."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from titan_pretrain.atomic import write_file

__all__ = ["FILE_NAME", "Outcome", "clear_outcome", "read_outcome", "save_outcome"]

FILE_NAME = "outcome.json"
State = Literal["finished", "stopped", "failed"]


@dataclass(frozen=True)
class Outcome:
    """The end of a run.

    Attributes:
        state: all steps done, stopped by a signal, or failed by an error.
        step: optimizer steps done.
        cause: the signal's name or the error's words; empty for a finished run.
    """

    state: State
    step: int
    cause: str = ""


def save_outcome(run_dir: Path, outcome: Outcome) -> None:
    """Write the outcome in one atomic exchange.

    Raises:
        OSError: it can't be written.
    """
    write_file(run_dir / FILE_NAME, json.dumps(asdict(outcome), indent=2) + "\n")


def clear_outcome(run_dir: Path) -> None:
    """Forget how the run ended, for it goes on.

    Raises:
        OSError: the file can't be removed.
    """
    (run_dir / FILE_NAME).unlink(missing_ok=True)


def read_outcome(run_dir: Path) -> Outcome | None:
    """How the run ended; None when it goes on, was killed, or the file is damaged."""
    try:
        values = json.loads((run_dir / FILE_NAME).read_text(encoding="utf-8"))
        state, step, cause = values["state"], values["step"], values["cause"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if state not in ("finished", "stopped", "failed") or not isinstance(step, int):
        return None
    return Outcome(state, step, str(cause))
