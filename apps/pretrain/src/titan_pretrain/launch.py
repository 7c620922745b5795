"""Several processes: torchrun's own launcher, run in this process.

The parent checks the config, decides the run folder and the thread count, and starts
``python -m titan_pretrain`` with the same config on every rank.  What a process has to say about its
failure it says itself; the parent adds one line and passes the exit code on.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import logging
import math
import os
import signal
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from titan_pretrain.cli.messages import error_lines, note, say
from titan_pretrain.errors import PretrainError, UsageError

if TYPE_CHECKING:
    from titan_pretrain.cli.options import ConfigChoice
    from titan_pretrain.cli.processes import LaunchOptions
    from titan_pretrain.config import TrainConfig
    from titan_pretrain.trainer.resume import Start

__all__ = ["die_with_parent", "launch", "torchrun_arguments"]

LAUNCHER_VARIABLE = "TITAN_LAUNCHER_PID"
"""Environment variable that tells a process which parent must outlive it."""

RUN_DIR_VARIABLE = "TITAN_RUN_DIR"
"""As in config.run_folder, which this module imports late."""

SHUTDOWN_VARIABLE = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
"""Environment variable: torchrun's own default for ``--shutdown-timeout``."""

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def launch(options: LaunchOptions, choice: ConfigChoice, config: TrainConfig, resume: str | None) -> int:
    """Train in several processes and wait for them.

    Args:
        options: how many, and torchrun's options.
        choice: what the processes load again.
        config: what it loads to, already checked.
        resume: passed on.

    Returns:
        0, or the exit code of the process that failed first; 130 after Ctrl-C.

    Raises:
        PretrainError: the run folder can't be made, or the processes can't be started.
    """
    _check_config_file(choice.config)
    child = [*choice.arguments(), *(["--resume", resume] if resume is not None else [])]
    parsed = _parse(torchrun_arguments(options))
    parsed.training_script_args = child  # not parsed: torchrun takes abbreviations of its own options
    _allow_to_save(parsed, config.run.comm_timeout_s)
    begin = _find_start(options, config, resume)
    code = 1  # unless it runs through
    try:
        with _environment(_variables(options, begin)):
            code = _run(parsed)
        return code
    finally:
        if code and begin is not None and begin.made_here:
            from titan_pretrain.config.run_folder import discard_unstarted

            discard_unstarted(begin.run_dir)


def _find_start(options: LaunchOptions, config: TrainConfig, resume: str | None) -> Start | None:
    """Where the run begins; None among several nodes, where rank 0 decides when they have met."""
    if options.nodes[1] > 1:
        return None
    from titan_pretrain.trainer.resume import find_start

    return find_start(config, resume, 0)


def torchrun_arguments(options: LaunchOptions) -> list[str]:
    """The command line that torchrun would get, without the arguments of the processes."""
    flags = [part for flag, value in options.flags.items() for part in (flag, value) if part is not None]
    return [f"--nproc-per-node={options.processes}", *flags, "-m", "titan_pretrain"]


def _check_config_file(config: str) -> None:
    """Every process reads the config again: a pipe is empty by then."""
    path = Path(config)
    if path.exists() and not path.is_file() and not path.is_dir():
        hint = "write it to a file"
        raise UsageError(f"--config ({config}): a pipe serves one process only", hint=hint)


def _parse(arguments: list[str]) -> Any:
    # Read when torch is loaded: its C++ side reports each failed connection with a page of frames.
    with _environment({"TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "FATAL")}):
        from torch.distributed.run import get_args_parser

    parser = get_args_parser()
    parser.prog = "torchrun"
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            return parser.parse_args(arguments)
    except SystemExit:
        last = said.getvalue().strip().rpartition("\n")[2]
        raise UsageError(f"torchrun refuses its options: {last.partition('error: ')[2] or last}") from None


def _variables(options: LaunchOptions, begin: Start | None) -> dict[str, str]:
    """What the processes learn by their environment."""
    variables = {LAUNCHER_VARIABLE: str(os.getpid())}
    if begin is not None:
        variables[RUN_DIR_VARIABLE] = str(begin.run_dir)
    return variables | _threads(options.processes, os.environ)


def _threads(processes: int, env: Mapping[str, str]) -> dict[str, str]:
    """Share the cores out; torchrun itself would give each process one."""
    if "OMP_NUM_THREADS" in env or processes == 1:
        return {}
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    threads = max(1, cores // processes)
    note(f"{processes} processes with OMP_NUM_THREADS={threads} each ({cores} cores)")
    return {"OMP_NUM_THREADS": str(threads)}


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _run(parsed: Any) -> int:
    """Torchrun's ``run``, with its tracebacks and log lines turned into one line of ours."""
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.elastic.rendezvous import RendezvousError
    from torch.distributed.run import run

    _quiet_logs(os.environ)
    _keep_interrupts(parsed)
    try:
        with _second_interrupt_kills():
            run(parsed)  # type: ignore[no-untyped-call]
    except ChildFailedError as error:
        return _report(error.failures)
    except SignalException as error:
        note(f"stopped by {signal.Signals(error.sigval).name}")
        return 128 + int(error.sigval)
    except (ValueError, AssertionError) as error:
        raise UsageError(f"torchrun refuses its options: {_first_line(error)}") from None
    except (RuntimeError, OSError, RendezvousError) as error:
        raise PretrainError(f"the processes can't be started: {_first_line(error)}") from None
    return 0


def _first_line(error: BaseException) -> str:
    root = error.__cause__ or error  # a rendezvous error only points at its cause
    return str(root).strip().partition("\n")[0] or type(root).__name__


def _report(failures: Mapping[int, Any]) -> int:
    """One line about the first process that failed of itself; the agent ended the others."""
    rank = min(
        failures, key=lambda rank: (failures[rank].exitcode == -signal.SIGTERM, failures[rank].timestamp)
    )
    code = int(failures[rank].exitcode)
    if code >= 0:
        say(error_lines(f"rank {rank} stopped with exit code {code} (its message is above)"))
        return code
    reason = " (often: the machine ran out of memory)" if code == -signal.SIGKILL else ""
    say(error_lines(f"rank {rank} was ended by {signal.Signals(-code).name}{reason}"))
    return 128 - code


def _quiet_logs(env: Mapping[str, str]) -> None:
    """Elastic's own log repeats, at length, what we say in a line; LOGLEVEL brings it back."""
    if "LOGLEVEL" in env:
        return
    talkers = tuple(f"torch.distributed.{part}" for part in ("elastic", "launcher", "run"))
    for name in list(logging.root.manager.loggerDict):
        if name.startswith(talkers):
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _keep_interrupts(parsed: Any) -> None:
    """Take SIGINT from the agent's signals, so that it makes the agent send SIGTERM.

    The agent would pass SIGINT on, and a process that waits in a collective never sees that.
    """
    if hasattr(parsed, "signals_to_handle"):
        names = [name for name in parsed.signals_to_handle.split(",") if name != "SIGINT"]
        parsed.signals_to_handle = ",".join(names)


def _allow_to_save(parsed: Any, patience_s: float) -> None:
    """Give processes that are told to stop the time a step and a save may take; torchrun gives 30 s.

    A process that hangs gives up by itself after ``patience_s``, and a second Ctrl-C ends all at once.
    """
    if getattr(parsed, "shutdown_timeout", 0) is None and SHUTDOWN_VARIABLE not in os.environ:
        parsed.shutdown_timeout = math.ceil(patience_s)


@contextlib.contextmanager
def _second_interrupt_kills() -> Iterator[None]:
    """The first Ctrl-C lets the processes save and stop; the second ends them at once."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # they die with us: die_with_parent
        note("\nstopping; once more stops at once")
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGINT, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)


def die_with_parent(env: MutableMapping[str, str]) -> None:
    """Let the kernel end this process when its launcher is gone, so that none trains on as an orphan."""
    parent = env.pop(LAUNCHER_VARIABLE, None)
    if parent is None or not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if str(os.getppid()) != parent:  # it was gone before we asked
        os._exit(1)
