"""Tokenizers of Hugging Face's ``tokenizers`` library: ``tokenizer.json``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers

from titan_pretrain.errors import DataError
from titan_pretrain.tokenizer.base import Tokenizer

__all__ = ["FastTokenizer", "load_fast"]

# End-of-document tokens of published models, for a tokenizer.json that comes without a config.
_USUAL_EOS = ("<|end_of_text|>", "<|endoftext|>", "</s>", "<eos>", "<|im_end|>", "<|eos|>", "[EOS]", "[SEP]")


class FastTokenizer(Tokenizer):
    """A tokenizer of the ``tokenizers`` library.

    Args:
        backend: The library's tokenizer.
        eos_id: Id put after every document.
        bos_id: Id put before every document, or None.
        config: What stood in ``tokenizer_config.json``, to be saved again.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        eos_id: int,
        bos_id: int | None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self._backend = backend
        self.eos_id = eos_id
        self.bos_id = bos_id
        self._config = dict(config or {})
        # A document that quotes "<|end_of_text|>" must not end there.
        backend.encode_special_tokens = True
        backend.no_truncation()
        backend.no_padding()

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (self._backend.to_str(), self.eos_id, self.bos_id, self._config)

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``."""
        # The batch call without offsets is a third faster than encode(), even for one text.
        return list(self._backend.encode_batch_fast([text], add_special_tokens=False)[0].ids)

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ``ids``."""
        return self._backend.decode(list(ids), skip_special_tokens=False)

    def vocabulary(self) -> dict[str, int]:
        """Return all tokens with their ids."""
        return self._backend.get_vocab(with_added_tokens=True)

    def save(self, folder: Path) -> None:
        """Write ``tokenizer.json`` and ``tokenizer_config.json``."""
        folder.mkdir(parents=True, exist_ok=True)
        # The library's own save raises a plain Exception on a full disk.
        (folder / "tokenizer.json").write_text(self._backend.to_str(pretty=True), encoding="utf-8")
        text = json.dumps(self._own_config() | self._config, indent=2, ensure_ascii=False)
        (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")

    def _own_config(self) -> dict[str, Any]:
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "clean_up_tokenization_spaces": False,
            "eos_token": self._backend.id_to_token(self.eos_id),
        }
        if self.bos_id is not None:
            config["bos_token"] = self._backend.id_to_token(self.bos_id)
        return config


def _unpickle(text: str, eos_id: int, bos_id: int | None, config: Mapping[str, Any]) -> FastTokenizer:
    backend = tokenizers.Tokenizer.from_str(text)
    return FastTokenizer(backend, eos_id=eos_id, bos_id=bos_id, config=config)


def load_fast(file: Path) -> FastTokenizer:
    """Load a ``tokenizer.json``, with the ``tokenizer_config.json`` beside it if there is one.

    Raises:
        DataError: The file is damaged, or nothing tells which token ends a document.
    """
    try:
        backend = tokenizers.Tokenizer.from_str(file.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises plain Exception
        raise DataError(f"tokenizer.path ({file}) isn't a readable tokenizer.json: {error}") from None
    config = _read_config(file.with_name("tokenizer_config.json"))
    return FastTokenizer(
        backend, eos_id=_eos_id(backend, config, file), bos_id=_bos_id(backend, config), config=config
    )


def _read_config(file: Path) -> dict[str, Any]:
    if not file.exists():
        return {}
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{file} isn't JSON: {error}") from None
    return config if isinstance(config, dict) else {}


def _eos_id(backend: tokenizers.Tokenizer, config: Mapping[str, Any], file: Path) -> int:
    names = [name] if (name := _token_name(config.get("eos_token"))) else list(_USUAL_EOS)
    for name in names:
        token_id = backend.token_to_id(name)
        if token_id is not None:
            return token_id
    raise DataError(
        f"tokenizer.path ({file}): no token is known to end a document; name it in a "
        f'tokenizer_config.json beside it, for example {{"eos_token": "</s>"}}'
    )


def _bos_id(backend: tokenizers.Tokenizer, config: Mapping[str, Any]) -> int | None:
    """Return the token this family puts before a text: the one its own post-processor adds."""
    bare = backend.encode("a", add_special_tokens=False).ids
    framed = backend.encode("a", add_special_tokens=True).ids
    for start in range(len(framed) - len(bare) + 1):
        if framed[start : start + len(bare)] == bare and start:
            return framed[0]
    name = _token_name(config.get("bos_token"))
    return backend.token_to_id(name) if name and config.get("add_bos_token") else None


def _token_name(value: object) -> str | None:
    """Read a token as configs write it: a string, or an object with ``content``."""
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) else None
