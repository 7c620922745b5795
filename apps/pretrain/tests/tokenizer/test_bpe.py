from __future__ import annotations

import subprocess
import sys

import pytest

from titan_pretrain.errors import DataError
from titan_pretrain.tokenizer import train_bpe


def test_size_and_special_tokens(bpe):
    assert bpe.vocab_size == 2000
    assert [bpe.decode([i]) for i in range(3)] == ["<|begin_of_text|>", "<|end_of_text|>", "<|pad|>"]
    assert (bpe.bos_id, bpe.eos_id) == (0, 1)


def test_every_byte_can_be_written():
    tokenizer = train_bpe(["abc abc"], 300)
    text = "".join(map(chr, range(1, 0x800))) + "中🙂"
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_it_compresses(bpe, corpus):
    characters = sum(map(len, corpus))
    assert sum(len(bpe.encode(text)) for text in corpus) < characters / 2.5


def test_short_text_gives_a_small_vocabulary():
    assert 259 < train_bpe(["hello hello"], 4096).vocab_size < 270


def test_numbers_are_cut_in_threes_and_lines_apart(bpe):
    pieces = [bpe.decode([i]) for i in bpe.encode("1234567\n\n  x")]
    assert all(len(piece) <= 3 for piece in pieces)
    assert "".join(pieces) == "1234567\n\n  x"


@pytest.mark.slow
def test_deterministic_over_processes(corpus, bpe):
    assert train_bpe(corpus, 2000).fingerprint == bpe.fingerprint
    code = (
        "from titan_pretrain.data.stdlib import stdlib_source\n"
        "from titan_pretrain.tokenizer import train_bpe\n"
        "texts = [text for text, _ in zip(stdlib_source().sample(), range(40))]\n"
        "print(train_bpe(iter(texts), 2000).fingerprint)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == bpe.fingerprint


@pytest.mark.parametrize("texts", [[], ["", ""]])
def test_no_text(texts):
    with pytest.raises(DataError, match="too little text"):
        train_bpe(texts, 300)
