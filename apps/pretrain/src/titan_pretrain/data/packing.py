"""From documents to sequences of a fixed length, resumable at every sequence."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from titan_pretrain.data.documents import Documents
from titan_pretrain.data.source import Json
from titan_pretrain.errors import DataError
from titan_pretrain.tokenizer import Tokenizer

__all__ = ["Cursor", "ShardPacker", "TokenSequence"]

IGNORED = -100
_MAX_WITHOUT_TOKENS = 100_000


@dataclass(frozen=True)
class Cursor:
    """Where a virtual shard goes on.

    Attributes:
        ordinal: Number of the document among those of the shard.
        offset: Tokens of it (with BOS and EOS) that are consumed.
        snapshot: For streams, where the source stood shortly before the document.
    """

    ordinal: int = 0
    offset: int = 0
    snapshot: Json = None

    def to_json(self) -> dict[str, Json]:
        """Return a JSON-able form."""
        fields = {"document": self.ordinal, "offset": self.offset}
        return fields if self.snapshot is None else fields | {"snapshot": self.snapshot}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Cursor:
        """Read :meth:`to_json`'s form."""
        return cls(int(value["document"]), int(value["offset"]), value.get("snapshot"))


@dataclass(frozen=True)
class TokenSequence:
    """One packed sequence, as small as it travels from a worker.

    Attributes:
        shard: Virtual shard it comes from.
        tokens: (T + 1,) int32; the last one is the last label only.
        lengths: Tokens of each document among the first T, in order; they sum to T.
        continues: Whether the last label belongs to the last document.
        cursor: Where the shard goes on after this sequence.
        hash: Short hash of the tokens.
    """

    shard: int
    tokens: npt.NDArray[np.int32]
    lengths: tuple[int, ...]
    continues: bool
    cursor: Cursor
    hash: str


class ShardPacker:
    """Cuts the endless token stream of one virtual shard into sequences.

    The stream is every document's tokens, with BOS before (if the tokenizer has one) and EOS after
    them.  Sequences take T + 1 tokens each and start T apart, so each token is a label once.
    """

    def __init__(
        self, documents: Documents, tokenizer: Tokenizer, seq_len: int, shard: int, cursor: Cursor
    ) -> None:
        self._documents = documents
        self._tokenizer = tokenizer
        self._seq_len = seq_len
        self._shard = shard
        self._cursor = cursor
        self._tokens: npt.NDArray[np.int32] | None = None  # of the document at the cursor

    def __next__(self) -> TokenSequence:
        """Return the next sequence.

        Raises:
            DataError: A document can't be read.
        """
        chunks = []
        missing = self._seq_len
        while missing:
            chunk = self._rest()[:missing]
            chunks.append(chunk)
            missing -= len(chunk)
            self._advance(len(chunk))
        last_label = self._rest()[:1]  # peeked: it is also the next sequence's first token
        tokens = np.concatenate([*chunks, last_label])
        return TokenSequence(
            shard=self._shard,
            tokens=tokens,
            lengths=tuple(len(chunk) for chunk in chunks),
            continues=self._cursor.offset > 0,
            cursor=self._cursor,
            hash=hashlib.blake2b(tokens.tobytes(), digest_size=8).hexdigest(),
        )

    def _rest(self) -> npt.NDArray[np.int32]:
        """Return what is left of the document at the cursor, or of the next one that has tokens."""
        if self._tokens is None:
            self._tokens = self._load(self._cursor.ordinal, self._cursor.offset)
        elif self._cursor.offset >= len(self._tokens):
            self._tokens = self._load(self._cursor.ordinal + 1, 0)
        return self._tokens[self._cursor.offset :]

    def _advance(self, count: int) -> None:
        cursor = self._cursor
        self._cursor = Cursor(cursor.ordinal, cursor.offset + count, cursor.snapshot)

    def _load(self, ordinal: int, offset: int) -> npt.NDArray[np.int32]:
        """Put the cursor on the first document from ``ordinal`` on that has tokens, and return them."""
        candidate = ordinal
        for _ in range(_MAX_WITHOUT_TOKENS):
            document = self._documents.fetch(self._shard, candidate)
            tokens = self._tokenizer.encode(document.text)
            if tokens:
                self._check_unchanged(ordinal, offset, document.ordinal, len(tokens))
                self._cursor = Cursor(document.ordinal, offset, document.snapshot)
                return self._framed(tokens)
            candidate = document.ordinal + 1
        raise DataError(
            f"the tokenizer gives no tokens for {_MAX_WITHOUT_TOKENS} documents in a row; "
            "check tokenizer.path"
        )

    def _check_unchanged(self, ordinal: int, offset: int, found: int, tokens: int) -> None:
        if offset and (found != ordinal or offset > tokens + 1):
            raise DataError("the dataset changed since the checkpoint: a document became shorter")

    def _framed(self, tokens: list[int]) -> npt.NDArray[np.int32]:
        bos = [] if self._tokenizer.bos_id is None else [self._tokenizer.bos_id]
        return np.array([*bos, *tokens, self._tokenizer.eos_id], dtype=np.int32)
