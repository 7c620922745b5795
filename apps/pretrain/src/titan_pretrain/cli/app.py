"""``titan-pretrain``: train, and the commands around it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from titan_pretrain._version import __version__
from titan_pretrain.cli import config_commands, file_commands
from titan_pretrain.cli.failures import guarded
from titan_pretrain.cli.options import ConfigChoice, config_options, launch_flags, launch_options
from titan_pretrain.cli.processes import LaunchOptions, is_rank, world_of_rank
from titan_pretrain.cli.program import Program
from titan_pretrain.errors import UsageError

if TYPE_CHECKING:
    from titan_pretrain.config import LoadedConfig

__all__ = ["main", "program"]

HELP = """Pretrain a language model on Volta and Turing GPUs, or on CPUs.

\b
  titan-pretrain --config llama3_debug
  titan-pretrain --config run.toml --set training.steps=500 --nproc 2
  titan-pretrain --config llama3_debug --resume auto

`titan-pretrain presets` lists the presets, `titan-pretrain config schema` every option.
"""

NO_CONFIG = "which config? --config takes a preset, a TOML file or module:function"
PRESET_HINT = "start with `titan-pretrain --config llama3_debug`; `titan-pretrain presets` lists all presets"


@click.group(
    cls=Program,
    name="titan-pretrain",
    help=HELP,
    invoke_without_command=True,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 110,
        "token_normalize_func": lambda token: token.replace("_", "-"),  # torchrun takes both
    },
)
@config_options
@click.option(
    "--resume",
    metavar="auto|PATH",
    help="Continue the newest run of that name, a run folder or a checkpoint.",
)
@launch_options
@click.version_option(__version__, prog_name="titan-pretrain", message="%(prog)s %(version)s")
@click.pass_context
def program(ctx: click.Context, /, **params: Any) -> int:
    """Train, unless a command follows."""
    if ctx.invoked_subcommand is not None:
        _refuse_training_options(ctx, params)
        return 0
    if params["config"] is None:
        params["config"] = _config_of_run(params["resume"])
    if params["config"] is None:
        raise click.UsageError(f"{NO_CONFIG}\n  hint: {PRESET_HINT}")
    choice = ConfigChoice(params["config"], params["module"], params["overrides"])
    return _train(choice, params["resume"], params["nproc"], launch_flags(params))


def _config_of_run(resume: str | None) -> str | None:
    """The config that a run folder, or the run folder of a checkpoint, was made with.

    Raises:
        UsageError: ``resume`` is a path that has none.
    """
    if resume is None or resume == "auto":
        return None
    folder = Path(resume).expanduser()
    candidates = (folder / "config.toml", folder.resolve().parent.parent / "config.toml")
    found = next((str(path) for path in candidates if path.is_file()), None)
    if found is None:
        raise UsageError(
            f"--resume ({resume}) has no config.toml",
            hint="give a folder like runs/NAME-TIME or runs/NAME-TIME/checkpoints/step-00000100, "
            "or a --config",
        )
    return found


def _refuse_training_options(ctx: click.Context, names: Iterable[str]) -> None:
    typed = click.core.ParameterSource.COMMANDLINE
    given = next((name for name in names if ctx.get_parameter_source(name) is typed), None)
    if given is not None:
        option = "--set" if given == "overrides" else f"--{given.replace('_', '-')}"
        text = f"{option} stands before `{ctx.invoked_subcommand}`"
        raise click.UsageError(f"{text}\n  hint: options of a command follow it")


def _train(choice: ConfigChoice, resume: str | None, nproc: str | None, flags: dict[str, str | None]) -> int:
    from titan_pretrain import launch

    if is_rank(os.environ):
        launch.die_with_parent(os.environ)
        return _train_here(choice.load(world_of_rank(os.environ)), resume)
    options = LaunchOptions(nproc or "1", flags)
    loaded = choice.load(options.world())
    if options.is_single:
        return _train_here(loaded, resume)
    return launch.launch(options, choice, loaded.config, resume)


def _train_here(loaded: LoadedConfig, resume: str | None) -> int:
    from titan_pretrain.trainer.main import run

    return run(loaded.config, resume=resume)


program.add_command(config_commands.config)
program.add_command(config_commands.presets)
program.add_command(file_commands.tokenizer)
program.add_command(file_commands.export)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line.

    Returns:
        The exit code: 0 done, 1 failed, 2 wrong usage, 130 stopped by Ctrl-C.
    """
    return guarded(program, sys.argv[1:] if arguments is None else arguments)
