"""Training from the command line, and what it says to typos."""

# ruff: noqa: E501 - messages are quoted whole

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from titan_pretrain._version import __version__

Run = Callable[..., Any]

HEAVY = ("torch", "pydantic", "numpy", "rich", "matplotlib", "tokenizers", "titan_pretrain.config")


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from titan_pretrain.cli.app import main; code = main(['--help']);"
        f"print([name for name in {HEAVY} if name in sys.modules], code, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[] 0"
    assert "--rdzv-endpoint" in done.stdout


def test_help_takes_less_than_half_a_second() -> None:
    """Of processor time: a busy machine doesn't count against it, nor does compiling on a first call."""
    times = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "titan_pretrain", "--help"], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(times) < 0.5, times


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["config", "--help"],
        ["config", "show", "-h"],
        ["config", "validate", "--help"],
        ["config", "diff", "--help"],
        ["config", "schema", "--help"],
        ["presets", "--help"],
        ["tokenizer", "train", "--help"],
        ["export", "--help"],
    ],
)
def test_help_of_every_command(run: Run, arguments: list[str]) -> None:
    result = run(*arguments)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith("Usage: titan-pretrain")


def test_version(run: Run) -> None:
    assert run("--version").out == f"titan-pretrain {__version__}\n"


def test_no_config(run: Run) -> None:
    result = run()
    assert (result.code, result.out) == (2, "")
    assert result.err == (
        "error: which config? --config takes a preset, a TOML file or module:function\n"
        "  hint: start with `titan-pretrain --config llama3_debug`; "
        "`titan-pretrain presets` lists all presets\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--confi x", "error: no such option `--confi`\n  hint: did you mean `--config`?\n"),
        ("--xyzzy", "error: no such option `--xyzzy`\n  hint: `titan-pretrain --help`\n"),
        ("config show --defalts", "error: no such option `--defalts`\n  hint: did you mean `--defaults`?\n"),
        ("confg", "error: no such command `confg`\n  hint: did you mean `titan-pretrain config`?\n"),
        ("config shw", "error: no such command `shw`\n  hint: did you mean `titan-pretrain config show`?\n"),
        (
            "xyzzy",
            "error: no such command `xyzzy`\n  hint: commands of `titan-pretrain`: config, export, presets, "
            "tokenizer\n",
        ),
        ("config", None),
        (
            "llama3_debug",
            "error: no such command `llama3_debug`\n  hint: did you mean `titan-pretrain --config llama3_debug`?\n",
        ),
        (
            "--training.steps 5",
            "error: no such option `--training.steps`\n  hint: did you mean `--set training.steps=5`?\n",
        ),
        (
            "--config llama3_debug --steps=5",
            "error: no such option `--steps`\n  hint: did you mean `--set training.steps=5`?\n",
        ),
        (
            "--training",
            "error: no such option `--training`\n"
            "  hint: its options are set by --set training.KEY=VALUE; `titan-pretrain config schema` lists them\n",
        ),
        (
            "resume",
            "error: no such command `resume`\n  hint: did you mean `titan-pretrain --resume`?\n",
        ),
        (
            "--resume nowhere",
            "error: --resume (nowhere) has no config.toml\n  hint: give a folder like runs/NAME-TIME or "
            "runs/NAME-TIME/checkpoints/step-00000100, or a --config\n",
        ),
        (
            "train --config llama3_debug",
            "error: no such command `train`\n"
            "  hint: training needs no command: `titan-pretrain --config NAME`\n",
        ),
        ("--stepz", "error: no such option `--stepz`\n  hint: did you mean `--set training.steps=VALUE`?\n"),
        (
            "--batch_size 8",
            "error: no such option `--batch-size`\n  hint: did you mean `--set training.micro_batch_size=8`?\n",
        ),
        (
            "--optim.learning_rate 1",
            "error: no such option `--optim.learning-rate`\n  hint: did you mean `--set optim.lr=1`?\n",
        ),
        (
            "--compile",
            "error: no such option `--compile`\n"
            "  hint: its options are set by --set compile.KEY=VALUE; `titan-pretrain config schema` lists them\n",
        ),
        (
            "config show llama3_debug --seq_len 64",
            "error: no such option `--seq-len`\n  hint: did you mean `--set training.seq_len=64`?\n",
        ),
        ("presets --steps 5", "error: no such option `--steps`\n  hint: `titan-pretrain presets --help`\n"),
        (
            "--config llama3_debug training.steps=5",
            "error: no such command `training.steps=5`\n  hint: did you mean `--set training.steps=5`?\n",
        ),
        (
            "config show llama3_debug training.steps=5",
            "error: got unexpected extra argument (training.steps=5)\n"
            "  hint: did you mean `--set training.steps=5`?\n",
        ),
        (
            "--config llama3_debug --set training.steps 5",
            "error: no such command `5`\n  hint: did you mean `--set training.steps=5`?\n",
        ),
        (
            "--set a=b config show",
            "error: --set stands before `config`\n  hint: options of a command follow it\n",
        ),
        ("--config", "error: option '--config' requires an argument.\n  hint: `titan-pretrain --help`\n"),
        (
            "--config llama3_debug --max-restarts x",
            "error: invalid value for '--max-restarts': 'x' is not a valid integer.\n"
            "  hint: `titan-pretrain --help`\n",
        ),
        (
            "--config llama3_debug --nproc 0",
            "error: --nproc (0): must be a number from 1 on, gpu, cpu or auto\n",
        ),
        (
            "--config llama3_debug --nnodes 2:1",
            "error: --nnodes (2:1): must be a number from 1 on, or MIN:MAX\n",
        ),
    ],
)
def test_wrong_usage(run: Run, arguments: str, message: str | None) -> None:
    result = run(*arguments.split())
    assert result.code == 2
    if message is not None:
        assert (result.err, result.out) == (message, "")


def test_broken_config_starts_nothing(run: Run, trainer: Any) -> None:
    result = run("--config", "llama3_debug", "--set", "optim.lrr=1", "--set", "model.n_heads=7")
    assert (result.code, result.out, trainer.calls) == (2, "", [])
    assert result.err == (
        "error: --set optim.lrr=1: unknown key `optim.lrr`\n"
        "  hint: did you mean `optim.lr`?\n"
        "error: --set model.n_heads=7: model.n_heads (7): must divide model.dim (256); use 4 or 8\n"
        "error: --set model.n_heads=7: model.n_kv_heads (4): must divide model.n_heads (7); use 1 or 7\n"
        "3 errors; nothing was started.\n"
    )


def test_training(run: Run, trainer: Any) -> None:
    trainer.outcome = 7
    result = run("--config", "llama3_debug", "--set=training.steps=20", "--resume", "auto")
    assert (result.code, result.out, result.err) == (7, "", "")
    (call,) = trainer.calls
    assert call["config"].training.steps == 20
    assert call["resume"] == "auto"


def test_underscores_as_torchrun_takes_them(run: Run, trainer: Any) -> None:
    assert run("--config", "llama3_debug", "--nproc_per_node", "1").code == 0
    assert len(trainer.calls) == 1


def test_a_rank_trains_and_launches_nothing(run: Run, trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert run("--config", "llama3_debug", "--nproc", "4", "--standalone").code == 0
    assert len(trainer.calls) == 1
    result = run("--config", "llama3_debug", "--set", "parallel.dp_shard=3")
    assert result.code == 2
    assert "the number of processes, 2" in result.err


def test_world_size_that_is_none(run: Run, trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "two")
    result = run("--config", "llama3_debug")
    assert (result.code, trainer.calls) == (2, [])
    assert result.err == "error: WORLD_SIZE (two): must be a number from 1 on; a launcher sets it\n"
