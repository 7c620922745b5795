"""The tokenizer a run uses, whatever file it came from."""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

__all__ = ["PROBE", "Tokenizer"]

# A few scripts, spacings and symbols: two tokenizers with the same vocabulary that cut these alike
# are the same for a checkpoint's purposes.
PROBE = (
    "def f(x):\n\treturn 3.14159 * x  # naïve\r\n\n  The quick brown fox DOESN'T jump over 1234567 dogs.\n"
    "Ελληνικά, русский, עברית, العربية, हिन्दी, ไทย, 中文字符, 日本語, 한국어 "
    "🙂👩‍👩‍👧 ½ ﬁ\u00a0\u3000 <|end_of_text|></s>"
)


class Tokenizer(ABC):
    """Text to token ids and back; picklable.

    Attributes:
        eos_id: Id put after every document.
        bos_id: Id put before every document, or None if this tokenizer's family doesn't do that.
    """

    eos_id: int
    bos_id: int | None

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Return the ids of ``text``; no special tokens are added, and none are recognised in it."""

    @abstractmethod
    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ``ids``, special tokens included."""

    @abstractmethod
    def vocabulary(self) -> dict[str, int]:
        """Return all tokens, special ones included, with their ids."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the files from which ``transformers.AutoTokenizer`` and ``load_tokenizer`` load it."""

    @cached_property
    def vocab_size(self) -> int:
        """Number of ids: the largest plus one."""
        return max(self.vocabulary().values()) + 1

    @cached_property
    def fingerprint(self) -> str:
        """Short hash of the vocabulary and of how a probe text is cut; equal on every machine."""
        facts = (sorted(self.vocabulary().items()), self.encode(PROBE), self.bos_id, self.eos_id)
        return hashlib.blake2b(json.dumps(facts).encode(), digest_size=8).hexdigest()
