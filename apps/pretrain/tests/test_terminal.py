"""Output that nobody reads, that is closed, or that knows no accents."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from titan_pretrain.config.run_folder import newest_checkpoint

ASCII = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
COMMAND = [sys.executable, "-m", "titan_pretrain"]
TINY = {
    "model.dim": 32,
    "model.n_layers": 1,
    "model.n_heads": 4,
    "model.n_kv_heads": 2,
    "model.ffn_dim": 48,
    "model.vocab_size": 300,
    "training.steps": 30,
    "training.seq_len": 32,
    "training.micro_batch_size": 2,
    "lr.warmup_steps": 1,
    "metrics.every": 1,
    "metrics.tensorboard": "false",
    "data.dataset": "text",
    "data.workers": 0,
}


def shell(line, folder, **variables):
    """Run a line of bash; ``$titan`` is the program."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TITAN_")}
    env = clean | {"OMP_NUM_THREADS": "1", "titan": " ".join(COMMAND)} | variables
    return subprocess.run(
        ["bash", "-c", line], cwd=folder, env=env, capture_output=True, timeout=200, check=False
    )


def training(folder: Path, name: str = "runs") -> str:
    (folder / "a.txt").write_text("some text to learn from\n" * 200)
    settings = TINY | {"data.path": "a.txt", "run.dir": name}
    return "$titan --config llama3_debug " + " ".join(
        f"--set {key}={value}" for key, value in settings.items()
    )


def finished(folder: Path, name: str = "runs") -> bool:
    (run,) = (folder / name).iterdir()
    newest = newest_checkpoint(run)
    return newest is not None and newest.name == "step-00000030"


@pytest.mark.slow
def test_training_goes_on_when_its_reader_leaves(tmp_path):
    done = shell(f"{training(tmp_path)} | head -3; exit ${{PIPESTATUS[0]}}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(b"\n") == 3
    assert not {b"error", b"Traceback"} & {*done.stderr.replace(b":", b" ").split()}, done.stderr
    assert finished(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_training_with_closed_streams(tmp_path, closed):
    done = shell(f"{training(tmp_path)} {closed}", tmp_path)
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    assert finished(tmp_path)


@pytest.mark.slow
def test_training_in_a_folder_that_the_output_cannot_spell(tmp_path):
    done = shell(training(tmp_path, "läufe"), tmp_path, **ASCII)
    assert done.returncode == 0, done.stdout + done.stderr
    assert b"run folder l\\xe4ufe/" in done.stdout
    assert finished(tmp_path, "läufe")


@pytest.mark.parametrize("command", ["config schema", "config show llama3_debug", "presets"])
def test_commands_end_quietly_when_their_reader_leaves(tmp_path, command):
    # A pipe holds 64 KiB: the command must find it closed, however little it prints.
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*COMMAND, *command.split()], cwd=tmp_path, stdout=writer, stderr=subprocess.PIPE, check=False
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (1, b"")


def test_commands_with_closed_streams(tmp_path):
    assert shell("$titan presets >&-", tmp_path).returncode == 0
    done = shell("$titan --bogus 2>&-", tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")


def test_errors_about_names_that_the_output_cannot_spell(tmp_path):
    done = shell("$titan --config ünknown", tmp_path, **ASCII)
    assert done.returncode == 2
    assert b"\\xfcnknown" in done.stderr
    assert b"Traceback" not in done.stderr


def test_what_is_opened_next_does_not_become_the_output(tmp_path):
    script = (
        "from titan_pretrain.terminal import prepare_streams\n"
        "prepare_streams()\n"
        "file = open('precious', 'w')\n"
        "import os; os.write(1, b'from a library'); print('from us')\n"
    )
    done = shell(f'{sys.executable} -c "$script" >&-', tmp_path, script=script)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "precious").read_bytes() == b""
