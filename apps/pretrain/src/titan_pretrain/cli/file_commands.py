"""``tokenizer train`` and ``export``: commands that write files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from titan_pretrain.atomic import new_folder
from titan_pretrain.cli.messages import note
from titan_pretrain.cli.options import ConfigChoice, config_options
from titan_pretrain.cli.program import Group
from titan_pretrain.errors import PretrainError, UsageError

if TYPE_CHECKING:
    from titan_pretrain.config import TrainConfig

__all__ = ["export", "tokenizer"]

SMALLEST_BPE = 260
NEW_FOLDER = click.argument("out", type=click.Path(path_type=Path), metavar="DIR")


@click.group(cls=Group)
def tokenizer() -> None:
    """Make tokenizers."""


@tokenizer.command()
@NEW_FOLDER
@config_options
@click.option(
    "--vocab-size", type=click.IntRange(min=SMALLEST_BPE), metavar="N", help="Default: the config's."
)
@click.option(
    "--characters",
    type=click.IntRange(min=1),
    default=20_000_000,
    show_default=True,
    metavar="N",
    help="Text to learn from.",
)
def train(out: Path, vocab_size: int | None, characters: int, **params: Any) -> None:
    """Train a byte-level BPE on a config's dataset and write it to DIR.

    Without --config the dataset is the text of Python's standard library.
    """
    _refuse_occupied(out)
    chosen = _config(params)
    size = vocab_size or chosen.tokenizer.vocab_size or chosen.model.vocab_size
    from titan_pretrain.data import build_source
    from titan_pretrain.tokenizer import train_bpe

    texts = build_source(chosen.data, seed=chosen.training.seed).sample()
    trained = train_bpe(_first(texts, characters), size)
    try:
        with new_folder(out) as folder:
            trained.save(folder)
    except OSError as error:
        raise PretrainError(f"DIR ({out}) can't be written: {error.strerror or error}") from None
    if trained.vocab_size < size:
        note(f"warning: {trained.vocab_size} tokens, not {size}: the text has no more pairs to merge")
    note(f"a tokenizer of {trained.vocab_size} tokens; use it with --set tokenizer.path={out}")
    click.echo(str(out))


def _config(params: dict[str, Any]) -> TrainConfig:
    name = params["config"] or "llama3_debug"
    return ConfigChoice(name, params["module"], params["overrides"]).load().config


def _first(texts: Iterable[str], characters: int) -> Iterator[str]:
    for text in texts:
        yield text
        characters -= len(text)
        if characters <= 0:
            return


@click.command()
@click.argument("paths", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="[CHECKPOINT] DIR")
@click.option("--to", "target", type=click.Choice(["hf"]), required=True, help="hf: a transformers folder.")
def export(paths: tuple[Path, ...], target: str) -> None:
    """Write a checkpoint's weights, config and tokenizer to DIR in another format.

    CHECKPOINT is a checkpoint folder, or a run folder for its newest one; by default the newest run
    in ./runs.
    """
    del target  # there is one
    *origins, out = paths
    if len(origins) > 1:
        raise click.UsageError(f"two folders at most, not {len(paths)}")
    _refuse_occupied(out)
    origin = origins[0] if origins else _newest_run()
    from titan_pretrain.export import export_hf

    note(f"from {export_hf(origin, out)}")
    click.echo(str(out))


def _refuse_occupied(out: Path) -> None:
    if out.is_dir() and any(out.iterdir()):
        raise UsageError(f"DIR ({out}) is not empty", hint="give a new folder")
    if out.exists() and not out.is_dir():
        raise UsageError(f"DIR ({out}) is a file", hint="give a new folder")


def _newest_run() -> Path:
    from titan_pretrain.config.run_folder import newest_run

    run = newest_run(Path("runs"))
    if run is None:
        raise UsageError(
            "no run in ./runs has a checkpoint", hint="name a checkpoint or a run folder before DIR"
        )
    return run
