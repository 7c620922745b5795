"""From an exception to lines on stderr and an exit code; tracebacks are for bugs, and filed."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click

from titan_pretrain.cli.hints import option_hint, setting_hint
from titan_pretrain.cli.messages import describe_bug, describe_error, error_lines, note, say, summarize
from titan_pretrain.cli.processes import is_rank
from titan_pretrain.cli.ranks import say_once
from titan_pretrain.errors import PretrainError
from titan_pretrain.terminal import flush_or_discard, prepare_streams

__all__ = ["guarded"]

INTERRUPTED = 130


def guarded(command: click.Command, arguments: Sequence[str]) -> int:
    """Run ``command`` and return its exit code, whatever happens."""
    prepare_streams()
    try:
        result = command.main(list(arguments), prog_name=command.name, standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.Abort as error:
        return _unexpected(error.__cause__) if isinstance(error.__cause__, EOFError) else _interrupted()
    except KeyboardInterrupt:
        return _interrupted()
    except click.ClickException as error:
        return _wrong_usage(error, arguments)
    except BrokenPipeError:
        return _reader_left()
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    except Exception as error:  # the last resort of the whole program
        return _failed(error)


def _wrong_usage(error: click.ClickException, arguments: Sequence[str]) -> int:
    context = error.ctx if isinstance(error, click.UsageError) else None
    message, _, hint = error.format_message().partition("\n  hint: ")
    if isinstance(error, click.NoSuchOption):
        message, hint = f"no such option `{error.option_name}`", option_hint(error, arguments)
    hint = (
        setting_hint(message, arguments)
        or hint
        or f"`{context.command_path if context else 'titan-pretrain'} --help`"
    )
    say(error_lines(f"{message[:1].lower()}{message[1:]}", hint))
    return error.exit_code


def _failed(error: Exception) -> int:
    if _is_ours(error):
        say_once(describe_error(error))
        return getattr(error, "exit_code", 1)
    return _unexpected(error)


def _is_ours(error: Exception) -> bool:
    """Whether a package of this project raised it for the user to read."""
    if isinstance(error, PretrainError):
        return True
    modules = [cls.__module__ for cls in type(error).__mro__]
    return any(name.startswith("titan_") and name.endswith(".errors") for name in modules)


def _unexpected(error: BaseException) -> int:
    say_once(describe_bug(error), meaning=summarize(error))
    return 1


def _interrupted() -> int:
    if not is_rank(os.environ):  # among several processes the launcher speaks
        note("stopped by Ctrl-C")
    return INTERRUPTED


def _reader_left() -> int:
    """``| head`` has read enough; Python must not try to flush into the closed pipe at exit."""
    for stream in (sys.stdout, sys.stderr):
        flush_or_discard(stream)
    return 1  # as click does
