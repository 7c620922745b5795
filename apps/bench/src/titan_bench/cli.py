"""``titan-bench``: benchmarks that verify before they time."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from titan_bench._version import __version__
from titan_bench.errors import BenchError
from titan_pretrain.terminal import prepare_streams

__all__ = ["program", "run"]

INTERRUPTED = 130


@click.group(name="titan-bench", context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="titan-bench", message="%(prog)s %(version)s")
def program() -> None:
    """Benchmarks that verify before they time, and compare both sides in one run."""


@program.command()
@click.option(
    "--config", default="llama3_debug", show_default=True, help="Preset, TOML file or module:function."
)
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override an option of the config."
)
@click.option(
    "--rounds",
    type=click.IntRange(min=4),
    default=40,
    show_default=True,
    help="Timed steps per side.",
)
@click.option(
    "--json", "json_path", type=click.Path(path_type=Path), help="Write the result to this file too."
)
@click.option("--require", type=float, metavar="RATIO", help="Fail if the trainer is slower than this share.")
def trainer(
    config: str, overrides: tuple[str, ...], rounds: int, json_path: Path | None, require: float | None
) -> None:
    """Tokens per second of the trainer against a bare PyTorch loop."""
    from titan_bench.report import print_trainer, save_trainer
    from titan_bench.trainer import measure_trainer
    from titan_pretrain.config import World, load_config

    loaded = load_config(config, overrides=overrides, world=World(1, "titan-bench"))
    result = measure_trainer(loaded.config, rounds, lambda text: click.echo(text, err=True))
    print_trainer(result)
    if json_path is not None:
        save_trainer(json_path, loaded.config, result)
    if require is not None and result.comparison.ratio < require:
        ratio = result.comparison.ratio
        raise BenchError(f"--require ({require:g}): the trainer reached {ratio:.3f} of the bare loop's speed")


@program.command()
@click.argument("names", metavar="[OP]...", nargs=-1)
@click.option("--emulate", is_flag=True, help="Count on the emulator and predict times; needs no GPU.")
@click.option(
    "--dtype",
    type=click.Choice(["fp16", "bf16", "fp32"]),
    default="fp16",
    show_default=True,
    help="Of the data.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=4),
    default=40,
    show_default=True,
    help="Timed calls of each implementation, on a GPU.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    help="Processes that emulate.  [default: one per processor, at most 4]",
)
@click.option(
    "--json", "json_path", type=click.Path(path_type=Path), help="Write the result to this file too."
)
@click.option(
    "--plot",
    "plot_path",
    type=click.Path(path_type=Path),
    help="Draw the speed-up over eager PyTorch: a .png, .svg or .pdf file.",
)
def kernels(**options: Any) -> None:
    """Times of the kernels against PyTorch and liger-kernel, of all operators or those that start with OP.

    Each result is verified against float64 before it is timed.
    """
    from titan_bench.kernels.command import Request, run_kernels

    run_kernels(Request(**options), lambda text: click.echo(text, err=True))


def run(arguments: Sequence[str]) -> int:
    """Run a command line; returns its exit code: 0 done, 1 failed, 2 wrong usage, 130 Ctrl-C."""
    prepare_streams()
    try:
        program.main(list(arguments), prog_name="titan-bench", standalone_mode=False)
    except click.Abort:
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except BenchError as error:
        click.echo(f"error: {error}", err=True)
        return error.exit_code
    except Exception as error:
        return _known(error)
    sys.stdout.flush()
    return 0


def _known(error: Exception) -> int:
    """Errors of titan-pretrain are printed as it prints them; anything else is a bug and goes on up."""
    from titan_pretrain.cli.messages import describe_error
    from titan_pretrain.errors import PretrainError

    if not isinstance(error, PretrainError):
        raise error
    click.echo(describe_error(error), err=True)
    return error.exit_code
