"""``tokenizer train`` and ``export``: commands that write files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

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
        trained.save(out)
    except OSError as error:
        raise PretrainError(f"DIR ({out}) can't be written: {error.strerror or error}") from None
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
@NEW_FOLDER
@click.option(
    "--to", "target", type=click.Choice(["hf"]), required=True, help="hf: safetensors for transformers."
)
@click.option(
    "--from",
    "origin",
    type=click.Path(path_type=Path),
    metavar="PATH",
    help="A checkpoint, or a run folder for its newest one.  [default: the newest run in ./runs]",
)
def export(out: Path, target: str, origin: Path | None) -> None:
    """Write a checkpoint's weights, config and tokenizer to DIR in another format."""
    del target  # there is one
    _refuse_occupied(out)
    checkpoint = _find_checkpoint(origin)
    note(f"from {checkpoint}")
    from titan_pretrain.export import export_hf

    export_hf(checkpoint, out)
    click.echo(str(out))


def _refuse_occupied(out: Path) -> None:
    if out.is_dir() and any(out.iterdir()):
        raise UsageError(f"DIR ({out}) is not empty", hint="give a new folder")
    if out.exists() and not out.is_dir():
        raise UsageError(f"DIR ({out}) is a file", hint="give a new folder")


def _find_checkpoint(origin: Path | None) -> Path:
    from titan_pretrain.config.run_folder import newest_checkpoint, newest_run

    if origin is None:
        run = newest_run(Path("runs"))
        if run is None:
            raise UsageError("no run in ./runs has a checkpoint", hint="give --from RUN or CHECKPOINT")
        origin = run
    if (origin / "manifest.json").is_file():
        return origin
    checkpoint = newest_checkpoint(origin)
    if checkpoint is None:
        text = f"--from ({origin}) is neither a checkpoint nor a run folder with one"
        raise UsageError(text, hint="such as runs/NAME-TIME or runs/NAME-TIME/checkpoints/step-00000100")
    return checkpoint
