"""Which tokenizer a run uses: the configured one, the run's own, or one trained now."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from titan_pretrain.atomic import new_folder
from titan_pretrain.errors import DataError, UsageError
from titan_pretrain.tokenizer.base import Tokenizer
from titan_pretrain.tokenizer.bpe import train_bpe
from titan_pretrain.tokenizer.load import load_tokenizer

if TYPE_CHECKING:
    from titan_pretrain.config.sections import TrainConfig
    from titan_pretrain.data.source import DocumentSource

__all__ = ["tokenizer_for_run"]

_TRAINING_TEXT = 20_000_000  # characters; more changes a small vocabulary little


def tokenizer_for_run(
    config: TrainConfig, source: DocumentSource, run_dir: Path, *, say: Callable[[str], None] | None = None
) -> Tokenizer:
    """Load or train the tokenizer of a run.

    With several ranks, call it on one rank first: it writes ``run_dir/tokenizer``, which the others load.

    Args:
        config: The run's config.
        source: Its training dataset; read only if a tokenizer must be trained.
        run_dir: The run's folder.
        say: Told when a tokenizer is trained, which takes seconds.

    Raises:
        UsageError: The tokenizer has more tokens than the model has embedding rows.
        DataError: A tokenizer file or the dataset can't be read.
    """
    folder = run_dir / "tokenizer"
    tokenizer = _choose(config, source, folder, say or _say_nothing)
    _check_vocab_size(tokenizer, config)
    if not folder.exists():  # a run folder is complete by itself: an export needs the tokenizer
        _save(tokenizer, folder)
    return tokenizer


def _say_nothing(_text: str) -> None:
    pass


def _choose(config: TrainConfig, source: DocumentSource, own: Path, say: Callable[[str], None]) -> Tokenizer:
    """The configured one, the run's own, that of the initial weights, or one trained now."""
    given = config.tokenizer.path or (own if own.exists() else _of_initial_weights(config))
    if given is not None:
        return load_tokenizer(given)
    size = config.tokenizer.vocab_size or config.model.vocab_size
    reuse = shlex.quote(str(own))
    say(f"training a tokenizer: vocab {size} on {source.name}; reuse it with --set tokenizer.path={reuse}")
    tokenizer = train_bpe(_first_characters(source, _TRAINING_TEXT), size)
    if tokenizer.vocab_size < size:
        say(f"the tokenizer has {tokenizer.vocab_size} tokens: the text has no more pairs to merge")
    return tokenizer


def _of_initial_weights(config: TrainConfig) -> Path | None:
    """The tokenizer that lies beside the weights of ``checkpoint.init_from``: they know no other."""
    source = config.checkpoint.init_from
    if source is None:
        return None
    folder = Path(source.removeprefix("hf:")).expanduser()
    beside = (
        [folder]
        if source.startswith("hf:")
        else [folder / "tokenizer", folder.resolve().parent.parent / "tokenizer"]
    )
    names = ("tokenizer.json", "tokenizer.model")
    return next((path for path in beside if any((path / name).is_file() for name in names)), None)


def _first_characters(source: DocumentSource, count: int) -> Iterator[str]:
    for text in source.sample():
        yield text
        count -= len(text)
        if count <= 0:
            return


def _save(tokenizer: Tokenizer, folder: Path) -> None:
    try:
        with new_folder(folder) as temporary:
            tokenizer.save(temporary)
    except OSError as error:
        raise DataError(f"the tokenizer can't be saved in {folder}: {error.strerror}") from None


def _check_vocab_size(tokenizer: Tokenizer, config: TrainConfig) -> None:
    rows = config.model.vocab_size
    if tokenizer.vocab_size <= rows:
        return
    name = config.tokenizer.path or "trained in this run"
    raise UsageError(
        f"tokenizer.path ({name}) has {tokenizer.vocab_size} tokens, model.vocab_size is {rows}: "
        f"set model.vocab_size to at least {tokenizer.vocab_size}, or use a smaller tokenizer"
    )
