"""Errors of several ranks: what all of them say is printed once.

The elastic agent gives each process of a node a file name,
``<folder>/attempt_<n>/<local rank>/error.json``.  The folder of the attempt exists before the
processes start and is the node's own, so the ranks leave notes there: the node's first rank says
what it has to say and notes it; the others wait a moment for that note and keep quiet if it is
theirs too.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

from titan_pretrain.cli.messages import say
from titan_pretrain.cli.processes import is_rank

__all__ = ["say_once"]

PATIENCE_S = 2.0
"""How long a rank waits for the first one's words; that may hang in a collective, not failing."""

POLL_S = 0.02


def say_once(text: str, meaning: str | None = None, env: Mapping[str, str] | None = None) -> None:
    """Print ``text`` on stderr, unless the node's first rank prints the same.

    Args:
        text: lines to print.
        meaning: what is compared; default the text.
        env: where the launcher's variables are looked up; default this process' environment.
    """
    env = os.environ if env is None else env
    meaning = text if meaning is None else meaning
    rank = env.get("RANK", "0")
    shown = text if rank == "0" else f"[rank {rank}] {text}"
    notes = _notes_folder(env)
    if not is_rank(env) or notes is None:
        say(shown)
    elif env.get("LOCAL_RANK") == "0":
        say(shown)
        _leave_note(notes, meaning)
    elif _wait_for_note(notes) != meaning:
        say(shown)


def _notes_folder(env: Mapping[str, str]) -> Path | None:
    error_file = env.get("TORCHELASTIC_ERROR_FILE")
    folder = Path(error_file).parent.parent if error_file else None
    return folder if folder is not None and folder.is_dir() else None


def _note(folder: Path) -> Path:
    return folder / "titan-first-rank-says.txt"


def _leave_note(folder: Path, text: str) -> None:
    try:
        partial = folder / f".{os.getpid()}.partial"
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")
        partial.replace(_note(folder))
    except OSError:
        return  # then the others print it too


def _wait_for_note(folder: Path) -> str | None:
    deadline = time.monotonic() + PATIENCE_S
    file = _note(folder)
    while not file.exists():
        if time.monotonic() > deadline:
            return None
        time.sleep(POLL_S)
    return file.read_text(encoding="utf-8", errors="replace")
