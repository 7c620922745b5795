"""What the user reads on stderr: errors, hints, notes, and reports of bugs."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
import tempfile
import time
import traceback
from collections.abc import Iterable, Sequence
from pathlib import Path

import click

from titan_pretrain.errors import ConfigError, PretrainError
from titan_pretrain.terminal import discard

__all__ = [
    "TRACEBACK_VARIABLE",
    "describe_bug",
    "describe_error",
    "error_lines",
    "note",
    "program_as_typed",
    "say",
    "summarize",
]

PROGRAM = "titan-pretrain"

TRACEBACK_VARIABLE = "TITAN_TRACEBACK"
"""Environment variable: ``1`` prints the traceback of an unexpected error instead of filing it."""


def say(text: str) -> None:
    """Write to stderr in one piece, so that ranks don't mix their lines."""
    try:
        sys.stderr.write(text if _has_colour() else click.unstyle(text))
        sys.stderr.flush()
    except OSError:  # whoever read it is gone; that is no reason to stop
        discard(sys.stderr)


def note(text: str) -> None:
    """One line about what is being done."""
    say(f"{text}\n")


def _has_colour() -> bool:
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def program_as_typed() -> str:
    """What a shell understands as this program: its name, or its path where the name is not on PATH.

    ``run_train.sh`` runs it from a virtual environment that nobody has activated.
    """
    own = Path(sysconfig.get_path("scripts")) / PROGRAM
    found = shutil.which(PROGRAM)
    if found is not None and (not own.exists() or Path(found).resolve() == own.resolve()):
        return PROGRAM
    if not own.exists():  # imported from a source tree
        return f"{shlex.quote(sys.executable)} -m titan_pretrain"
    here = Path.cwd()
    return shlex.quote(str(own.relative_to(here) if own.is_relative_to(here) else own))


def error_lines(message: str, hint: str | None = None) -> str:
    """``error: ...`` and, below it, ``hint: ...``."""
    text = f"{click.style('error:', fg='red', bold=True)} {message}\n"
    return f"{text}  {click.style('hint:', fg='cyan')} {hint}\n" if hint else text


def describe_error(error: Exception) -> str:
    """An error that the user can mend, as lines."""
    if isinstance(error, ConfigError):
        return _config_lines(error.problems)
    return error_lines(_one_line(str(error)), getattr(error, "hint", None))


def _config_lines(problems: Sequence[PretrainError]) -> str:
    lines = [error_lines(problem.message, problem.hint) for problem in problems]
    count = len(problems)
    return f"{''.join(lines)}{count} error{'s' if count > 1 else ''}; nothing was started.\n"


def describe_bug(error: BaseException, environ: dict[str, str] | None = None) -> str:
    """An unexpected error: one line, and the traceback in a file (or here, if asked for)."""
    env = dict(os.environ) if environ is None else environ
    trace = "".join(traceback.format_exception(error))
    message = f"this is a bug of titan-pretrain: {summarize(error)}"
    if env.get(TRACEBACK_VARIABLE) == "1":
        return trace + error_lines(message)
    file = _write_first_possible(_trace_files(env), trace)
    if file is None:
        return trace + error_lines(message)
    hint = f"please report it with {file}; {TRACEBACK_VARIABLE}=1 prints the traceback here"
    return error_lines(message, hint)


def summarize(error: BaseException) -> str:
    """The exception and its place: ``KeyError: 'x' (loader.py:12)``."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{_one_line(f'{type(error).__name__}: {error}')}{place}"


def _one_line(text: str, limit: int = 2000) -> str:
    return " ".join(text.split())[:limit]


def _trace_files(env: dict[str, str]) -> Iterable[Path]:
    run_folder = env.get("TITAN_RUN_DIR")
    if run_folder and Path(run_folder).is_dir():
        yield Path(run_folder) / f"traceback-rank{env.get('RANK', '0')}.txt"
    name = f"titan-pretrain-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
    yield Path(tempfile.gettempdir()) / name


def _write_first_possible(files: Iterable[Path], text: str) -> Path | None:
    for file in files:
        try:
            file.write_text(text, encoding="utf-8", errors="backslashreplace")
        except OSError:
            continue
        return file
    return None
