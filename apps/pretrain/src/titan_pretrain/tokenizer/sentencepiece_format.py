"""Sentencepiece models (Llama 2, Mistral), read by the ``sentencepiece`` package itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, normalizers

from titan_pretrain.errors import DataError
from titan_pretrain.extras import require
from titan_pretrain.tokenizer.base import PROBE, Tokenizer
from titan_pretrain.tokenizer.bpe import add_bos_template
from titan_pretrain.tokenizer.merges import merges_of

__all__ = ["SentencePieceTokenizer", "load_sentencepiece"]

_SPACE = "▁"


class SentencePieceTokenizer(Tokenizer):
    """A sentencepiece model.

    Args:
        model: The content of the model file.

    Raises:
        RuntimeError: It isn't a sentencepiece model.
        UsageError: The ``sentencepiece`` package is missing.
    """

    def __init__(self, model: bytes) -> None:
        library = require("sentencepiece", "sentencepiece", "a sentencepiece tokenizer.model")
        self._model = model
        self.processor: Any = library.SentencePieceProcessor(model_proto=model)
        self.eos_id = int(self.processor.eos_id())
        bos = int(self.processor.bos_id())
        self.bos_id = bos if bos >= 0 else None

    def __reduce__(self) -> tuple[Any, ...]:
        return SentencePieceTokenizer, (self._model,)

    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``."""
        return list(self.processor.encode(text))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ``ids``; control tokens such as BOS have none."""
        return str(self.processor.decode(list(ids)))

    def vocabulary(self) -> dict[str, int]:
        """Return all pieces with their ids."""
        processor = self.processor
        return {processor.id_to_piece(i): i for i in range(processor.get_piece_size())}

    def save(self, folder: Path) -> None:
        """Write ``tokenizer.model``, and ``tokenizer.json`` if that form cuts text exactly alike.

        Without it, ``transformers`` converts the model itself, which differs in runs of spaces.
        """
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.model").write_bytes(self._model)
        converted = _to_fast(self)
        if converted is not None:
            converted.save(str(folder / "tokenizer.json"))
        text = json.dumps(self._config(exact=converted is not None), indent=2, ensure_ascii=False)
        (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")

    def _config(self, *, exact: bool) -> dict[str, Any]:
        piece = self.processor.id_to_piece
        return {
            "tokenizer_class": "PreTrainedTokenizerFast" if exact else "LlamaTokenizer",
            "add_bos_token": self.bos_id is not None,
            "bos_token": None if self.bos_id is None else piece(self.bos_id),
            "eos_token": piece(self.eos_id),
            "unk_token": piece(self.processor.unk_id()),
            "clean_up_tokenization_spaces": False,
        }


def load_sentencepiece(file: Path) -> SentencePieceTokenizer:
    """Load a sentencepiece model.

    Raises:
        UsageError: The ``sentencepiece`` package is missing.
        DataError: The file isn't a sentencepiece model, or names no end-of-document token.
    """
    content = file.read_bytes()
    try:
        if not content:  # the library takes it for a model without pieces
            raise RuntimeError("empty file")
        tokenizer = SentencePieceTokenizer(content)
    except RuntimeError:
        raise DataError(
            f"tokenizer.path ({file}) is neither a tokenizer.json, nor a tiktoken file, nor a complete "
            "sentencepiece model"
        ) from None
    if tokenizer.eos_id < 0:
        raise DataError(f"tokenizer.path ({file}): the sentencepiece model has no EOS token")
    return tokenizer


def _to_fast(tokenizer: SentencePieceTokenizer) -> tokenizers.Tokenizer | None:
    """Convert a BPE model with byte fallback, as Llama's is; None if the result cuts anything differently.

    Whether it does is tried, on a text made of all the pieces among others: other kinds of models
    (unigram, normalising, without the space in front, with user-defined symbols) fail there.
    """
    processor = tokenizer.processor
    vocabulary = tokenizer.vocabulary()
    unknown = processor.id_to_piece(processor.unk_id())
    special = [piece for piece, i in vocabulary.items() if processor.is_control(i)]
    plain = {
        piece: processor.get_score(i)
        for piece, i in vocabulary.items()
        if piece != unknown and not processor.is_control(i) and not processor.is_byte(i)
    }
    ranks = {piece: rank for rank, piece in enumerate(sorted(plain, key=plain.__getitem__, reverse=True))}
    backend = tokenizers.Tokenizer(
        models.BPE(vocabulary, merges_of(ranks), unk_token=unknown, fuse_unk=True, byte_fallback=True)
    )
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), normalizers.Replace(" ", _SPACE)])
    backend.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    texts = (PROBE, "".join(plain).replace(_SPACE, " "), " ".join(plain))
    if any(backend.encode(text).ids != tokenizer.encode(text) for text in texts):
        return None
    backend.add_special_tokens([AddedToken(piece, normalized=False, special=True) for piece in special])
    if tokenizer.bos_id is not None:
        add_bos_template(backend, processor.id_to_piece(tokenizer.bos_id))
    return backend
