"""Several processes: torchrun in this process, its errors in one line, and nobody left behind.

A ``sitecustomize`` on the processes' path puts a stand-in in the trainer's place; what it does is
told by an environment variable that only the test knows.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from titan_pretrain.cli.options import ConfigChoice
from titan_pretrain.cli.processes import LaunchOptions, world_of_rank
from titan_pretrain.config import load_config
from titan_pretrain.errors import UsageError
from titan_pretrain.launch import launch, torchrun_arguments

STAND_IN = """
import os, signal, sys, time, types
from titan_pretrain.errors import TrainingError

def run(config, *, resume=None, **_):
    env, rank = os.environ, os.environ.get("RANK", "0")
    what = env["STAND_IN"]
    names = ("RANK", "WORLD_SIZE", "TITAN_RUN_DIR", "OMP_NUM_THREADS", "TORCHELASTIC_RESTART_COUNT")
    facts = [*(f"{name}={env.get(name)}" for name in names), f"steps={config.training.steps}",
             f"resume={resume}", f"pid={os.getpid()}"]
    os.write(1, (" ".join(facts) + "\\n").encode())  # in one piece: both ranks write to one pipe
    if what == "same":
        os.makedirs(f"{env['TITAN_RUN_DIR']}/checkpoints", exist_ok=True)
        raise TrainingError("the disk is full", hint="free some")
    if what == "usage" and rank == "1":
        sys.exit(2)
    if what == "killed" and rank == "1":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "once" and env["TORCHELASTIC_RESTART_COUNT"] == "0":
        sys.exit(5)
    if what == "saves":
        signal.signal(signal.SIGTERM, lambda *_: (print("saved", flush=True), os._exit(143)))
    if what == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if what in ("usage", "killed", "hangs", "saves", "deaf"):
        time.sleep(100)
    return 0

module = types.ModuleType("titan_pretrain.trainer.main")
module.run = run
sys.modules[module.__name__] = module
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a program with the stand-in in place, in a session of its own."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text(STAND_IN)
    started: list[subprocess.Popen[str]] = []

    def begin(what: str, *command: str, **variables: str) -> subprocess.Popen[str]:
        path = os.pathsep.join([str(tmp_path / "site"), os.environ.get("PYTHONPATH", "")])
        environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
        environment |= {"PYTHONPATH": path, "STAND_IN": what, "NO_COLOR": "1", **variables}
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


TRAIN = ("titan_pretrain", "--config", "llama3_debug", "--nproc", "2")


def _facts(out: str) -> list[dict[str, str]]:
    rows = [dict(pair.split("=") for pair in line.split()) for line in out.splitlines() if "=" in line]
    return sorted(rows, key=lambda row: (row["TORCHELASTIC_RESTART_COUNT"], row["RANK"]))


def test_all_ranks_train_the_same_run(start: Start) -> None:
    process = start("fine", *TRAIN, "--set", "training.steps=33", "--resume", "auto")
    out, err = process.communicate(timeout=120)
    first, second = _facts(out)
    assert process.returncode == 0, err
    assert (first["RANK"], second["RANK"]) == ("0", "1")
    assert first["WORLD_SIZE"] == "2"
    assert first["steps"] == "33"
    assert first["resume"] == "auto"
    assert first["TITAN_RUN_DIR"] == second["TITAN_RUN_DIR"]
    assert re.fullmatch(r"runs/llama3_debug-\d{8}-\d{6}", first["TITAN_RUN_DIR"])
    cores = len(os.sched_getaffinity(0))
    threads = max(1, cores // 2)
    assert first["OMP_NUM_THREADS"] == str(threads)
    assert err == f"2 processes with OMP_NUM_THREADS={threads} each ({cores} cores)\n"


@pytest.mark.slow
def test_the_users_threads_and_a_restart(start: Start) -> None:
    process = start("once", *TRAIN, "--max-restarts", "1", OMP_NUM_THREADS="3")
    out, err = process.communicate(timeout=120)
    rows = _facts(out)
    assert (process.returncode, err) == (0, "")
    assert {row["OMP_NUM_THREADS"] for row in rows} == {"3"}
    assert len({row["TITAN_RUN_DIR"] for row in rows}) == 1
    assert [row["RANK"] for row in rows if row["TORCHELASTIC_RESTART_COUNT"] == "1"] == ["0", "1"]


@pytest.mark.slow
def test_the_same_error_on_all_ranks_is_said_once(start: Start) -> None:
    process = start("same", *TRAIN, OMP_NUM_THREADS="1")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert re.fullmatch(
        r"error: the disk is full\n  hint: free some\n"
        r"error: rank [01] stopped with exit code 1 \(its message is above\)\n",
        err,
    ), err
    assert not Path(_facts(out)[0]["TITAN_RUN_DIR"]).exists()  # no step was done


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "code", "message"),
    [
        ("usage", 2, "error: rank 1 stopped with exit code 2 (its message is above)\n"),
        ("killed", 137, "error: rank 1 was ended by SIGKILL (often: the machine ran out of memory)\n"),
    ],
)
def test_the_exit_code_of_a_rank_is_passed_on(start: Start, what: str, code: int, message: str) -> None:
    process = start(what, *TRAIN, OMP_NUM_THREADS="1")
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (code, message)
    _wait_until_gone([int(row["pid"]) for row in _facts(out)])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "signals", "code"),
    [
        ("saves", [signal.SIGINT], 130),
        ("hangs", [signal.SIGTERM], 143),
        ("deaf", [signal.SIGINT, signal.SIGINT], 130),
        ("deaf", [signal.SIGKILL], -signal.SIGKILL),
    ],
)
def test_nobody_is_left_behind(start: Start, what: str, signals: list[signal.Signals], code: int) -> None:
    process = start(what, *TRAIN, OMP_NUM_THREADS="1")
    pids = _pids_when_ready(process)
    for number in signals:
        process.send_signal(number)
        time.sleep(0.3)
    out, err = process.communicate(timeout=20)
    assert process.returncode == code
    assert "Traceback" not in err
    assert out.count("saved") == (2 if what == "saves" else 0)
    _wait_until_gone(pids)


@pytest.mark.slow
def test_plain_torchrun(start: Start) -> None:
    command = ("torch.distributed.run", "--nproc-per-node", "2", "-m", "titan_pretrain")
    process = start("fine", *command, "--config", "llama3_debug", "--standalone", OMP_NUM_THREADS="1")
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert [(row["RANK"], row["TITAN_RUN_DIR"]) for row in _facts(out)] == [("0", "None"), ("1", "None")]


def test_a_broken_config_starts_no_process(start: Start) -> None:
    process = start("fine", *TRAIN, "--set", "parallel.dp_replicate=3")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (2, "")
    assert "must divide the number of processes, 2; start 3 processes" in err
    assert not Path("runs").exists()


def test_a_run_folder_that_cannot_be_made(start: Start) -> None:
    Path("runs").touch()
    process = start("fine", *TRAIN)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert err.startswith("error: run.dir (runs): no run folder can be made there: ")


def _pids_when_ready(process: subprocess.Popen[str]) -> list[int]:
    """The processes' ids, once both have begun to train."""
    if process.stdout is None:
        pytest.fail("no pipe")
    lines = [process.stdout.readline() for _ in range(2)]
    time.sleep(0.2)  # until they handle signals
    return [int(row["pid"]) for row in _facts("".join(lines))]


def _wait_until_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 5
    alive = set(pids)
    while alive and time.monotonic() < deadline:
        alive = {pid for pid in alive if _is_alive(pid)}
        time.sleep(0.02)
    assert not alive


def _is_alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def test_arguments() -> None:
    options = LaunchOptions("2", {"--nnodes": "1:3", "--rdzv-id": "a b", "--standalone": None})
    assert torchrun_arguments(options) == [
        "--nproc-per-node=2",
        *["--nnodes", "1:3", "--rdzv-id", "a b", "--standalone"],
        *["-m", "titan_pretrain"],
    ]


@pytest.mark.parametrize(
    ("flags", "variables", "seconds"),
    [({}, {}, 90), ({"--shutdown-timeout": "7"}, {}, 7), ({}, {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT": "8"}, None)],
)
def test_processes_that_are_told_to_stop_have_the_time_to_save(
    flags: dict[str, str | None],
    variables: dict[str, str],
    seconds: int | None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    given: list[int | None] = []
    monkeypatch.delenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(
        "titan_pretrain.launch._run", lambda parsed: given.append(parsed.shutdown_timeout) or 0
    )
    choice = ConfigChoice("llama3_debug", None, ("run.comm_timeout_s=90", f"run.dir={tmp_path}"))
    assert launch(LaunchOptions("2", flags), choice, choice.load().config, None) == 0
    assert given == [seconds]


def test_arguments_of_the_processes() -> None:
    choice = ConfigChoice("run.toml", "llama3", ("a.b=c d", "-x=1"))
    assert choice.arguments() == [
        *["--config", "run.toml", "--module", "llama3"],
        *["--set=a.b=c d", "--set=-x=1"],
    ]


@pytest.mark.parametrize(
    ("nproc", "flags", "size", "single"),
    [
        ("1", {}, 1, True),
        ("1", {"--standalone": None}, 1, False),
        ("2", {}, 2, False),
        ("2", {"--nnodes": "3"}, 6, False),
        ("2", {"--nnodes": "2:4"}, 4, False),
    ],
)
def test_world(nproc: str, flags: dict[str, str | None], size: int, single: bool) -> None:
    options = LaunchOptions(nproc, flags)
    assert (options.world().size, options.is_single) == (size, single)


@pytest.mark.parametrize("nproc", ["0", "-1", "two", "1.5", ""])
def test_impossible_numbers(nproc: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"--nproc ({nproc}): must be a number from 1 on")):
        LaunchOptions(nproc, {}).world()


def test_world_of_a_rank() -> None:
    assert world_of_rank({"WORLD_SIZE": "3"}).size == 3
    for text in ("0", "x", "-1"):
        with pytest.raises(UsageError, match="WORLD_SIZE"):
            world_of_rank({"WORLD_SIZE": text})


def test_torchruns_refusal_is_one_line() -> None:
    options = LaunchOptions("2", {"--numa-binding": "x"})
    config = load_config("llama3_debug").config
    with pytest.raises(UsageError, match=r"torchrun refuses its options: argument --numa.binding.*invalid"):
        launch(options, ConfigChoice("llama3_debug", None, ()), config, None)


def test_a_pipe_serves_one_process_only() -> None:
    os.mkfifo("pipe")
    config = load_config("llama3_debug").config
    with pytest.raises(UsageError, match=r"--config \(pipe\): a pipe serves one process only"):
        launch(LaunchOptions("2", {}), ConfigChoice("pipe", None, ()), config, None)
