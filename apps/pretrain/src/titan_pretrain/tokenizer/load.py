"""Reading a tokenizer, recognised by its content and not by its name."""

from __future__ import annotations

from pathlib import Path

from titan_pretrain.errors import DataError, UsageError
from titan_pretrain.tokenizer.base import Tokenizer
from titan_pretrain.tokenizer.fast import load_fast
from titan_pretrain.tokenizer.sentencepiece_format import load_sentencepiece
from titan_pretrain.tokenizer.tiktoken_format import is_tiktoken, load_tiktoken

__all__ = ["load_tokenizer"]

# The first that exists is taken; tokenizer.json is the most exact description.
_NAMES_IN_A_FOLDER = ("tokenizer.json", "tokenizer.model", "original/tokenizer.model")


def load_tokenizer(path: str | Path) -> Tokenizer:
    """Load a tokenizer.

    Args:
        path: ``tokenizer.json``, a tiktoken-format ``tokenizer.model`` (Llama 3), a sentencepiece
            model (Llama 2), or a folder that holds one of them.

    Raises:
        UsageError: The path doesn't exist, or names no tokenizer.
        DataError: The file is damaged.
    """
    file = _find(Path(path).expanduser())
    try:
        with file.open("rb") as handle:
            head = handle.read(4096)
    except OSError as error:
        raise DataError(f"tokenizer.path ({file}) can't be read: {error.strerror}") from None
    if head.lstrip(b" \t\r\n\xef\xbb\xbf").startswith(b"{"):
        return load_fast(file)
    return load_tiktoken(file) if is_tiktoken(head) else load_sentencepiece(file)


def _find(path: Path) -> Path:
    if path.is_file():
        return path
    if not path.exists():
        raise UsageError(f"tokenizer.path ({path}) doesn't exist; relative paths start at {Path.cwd()}")
    for name in _NAMES_IN_A_FOLDER:
        if (path / name).is_file():
            return path / name
    raise UsageError(f"tokenizer.path ({path}): the folder has no {' or '.join(_NAMES_IN_A_FOLDER)}")
