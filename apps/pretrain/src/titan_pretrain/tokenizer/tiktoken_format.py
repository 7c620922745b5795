"""Llama 3's ``tokenizer.model``: a tiktoken file, ``base64(token) rank`` per line.

It is turned into a ``tokenizers`` BPE, which cuts text alike, is saved as ``tokenizer.json`` without
loss, and needs no further package.  (``tiktoken`` itself panics on documents beyond some 400,000
characters, see openai/tiktoken#195.)
"""

from __future__ import annotations

import base64
import binascii
from pathlib import Path

from tokenizers import AddedToken, models

from titan_pretrain.errors import DataError
from titan_pretrain.tokenizer.bpe import BOS, EOS, add_bos_template, byte_level_bpe
from titan_pretrain.tokenizer.fast import FastTokenizer
from titan_pretrain.tokenizer.merges import merges_of

__all__ = ["is_tiktoken", "load_tiktoken"]

_LLAMA3_RANKS = 128_000
_NUM_SPECIAL = 256
_SPECIAL = (
    BOS,
    EOS,
    "<|reserved_special_token_0|>",
    "<|reserved_special_token_1|>",
    "<|finetune_right_pad_id|>",
    "<|step_id|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eom_id|>",
    "<|eot_id|>",
    "<|python_tag|>",
    "<|image|>",
)


def is_tiktoken(head: bytes) -> bool:
    """Whether a file that starts with ``head`` is a tiktoken file."""
    try:
        _parse_line(head.split(b"\n", 1)[0])
    except ValueError:
        return False
    return True


def load_tiktoken(file: Path) -> FastTokenizer:
    """Load a tiktoken file with Llama 3's pattern and special tokens, which the file doesn't hold.

    Raises:
        DataError: The file is damaged, or has more ranks than Llama 3's 128,000: another family with
            another pattern.
    """
    ranks = _read_ranks(file)
    if len(ranks) > _LLAMA3_RANKS:
        raise DataError(
            f"tokenizer.path ({file}) has {len(ranks)} ranks: of the tiktoken files only Llama 3's "
            f"({_LLAMA3_RANKS}) is known; use this model's tokenizer.json"
        )
    letters = _byte_letters()
    vocabulary = {_spell(token, letters): rank for token, rank in ranks.items()}
    merges = [(_spell(left, letters), _spell(right, letters)) for left, right in merges_of(ranks)]
    # A piece of text that is a token as a whole is not merged from its bytes: so does tiktoken.
    backend = byte_level_bpe(models.BPE(vocabulary, merges, ignore_merges=True))
    backend.add_special_tokens(
        [AddedToken(name, normalized=False, special=True) for name in _special_names()]
    )
    add_bos_template(backend, BOS)
    return FastTokenizer(backend, bos_id=len(ranks), eos_id=len(ranks) + 1)


def _special_names() -> list[str]:
    reserved = range(2, _NUM_SPECIAL - len(_SPECIAL) + 2)
    return [*_SPECIAL, *(f"<|reserved_special_token_{i}|>" for i in reserved)]


def _read_ranks(file: Path) -> dict[bytes, int]:
    ranks = {}
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        try:
            token, rank = _parse_line(line)
        except ValueError:
            raise DataError(f"{file}:{number} isn't `base64 rank`; fetch the file again") from None
        ranks[token] = rank
    if sorted(ranks.values()) != list(range(len(ranks))):
        raise DataError(f"tokenizer.path ({file}): ranks are missing or doubled; fetch the file again")
    return ranks


def _parse_line(line: bytes) -> tuple[bytes, int]:
    token, _, rank = line.strip().partition(b" ")
    try:
        return base64.b64decode(token, validate=True), int(rank)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def _byte_letters() -> list[str]:
    """Return the printable letter that stands for each byte in byte-level BPE (GPT-2's table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (byte for byte in range(256) if byte not in printable)
    letters = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    return [letters[byte] for byte in range(256)]


def _spell(token: bytes, letters: list[str]) -> str:
    return "".join(letters[byte] for byte in token)
