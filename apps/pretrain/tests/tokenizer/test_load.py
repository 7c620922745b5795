from __future__ import annotations

import pytest

from titan_pretrain.errors import DataError, UsageError
from titan_pretrain.tokenizer import load_tokenizer
from titan_pretrain.tokenizer.fast import FastTokenizer
from titan_pretrain.tokenizer.sentencepiece_format import SentencePieceTokenizer


def test_content_decides_not_the_name(bpe, tiktoken_file, sentencepiece_file, tmp_path):
    bpe.save(tmp_path)
    contents = {
        (tmp_path / "tokenizer.json").read_bytes(): FastTokenizer,
        tiktoken_file.read_bytes(): FastTokenizer,
        sentencepiece_file().read_bytes(): SentencePieceTokenizer,
    }
    for content, kind in contents.items():
        for name in ("x", "tokenizer.json", "tokenizer.model"):
            (tmp_path / name).write_bytes(content)
            assert type(load_tokenizer(tmp_path / name)) is kind
            (tmp_path / name).unlink()


def test_folders(bpe, tiktoken_file, tmp_path):
    (tmp_path / "original").mkdir()
    (tmp_path / "original" / "tokenizer.model").write_bytes(tiktoken_file.read_bytes())
    assert load_tokenizer(tmp_path).vocab_size == bpe.vocab_size - 3 + 256
    bpe.save(tmp_path)
    assert load_tokenizer(str(tmp_path)).vocab_size == bpe.vocab_size


def test_missing(tmp_path):
    with pytest.raises(UsageError, match=r"tokenizer.path \(.*nothing\) doesn't exist"):
        load_tokenizer(tmp_path / "nothing")
    with pytest.raises(UsageError, match=r"the folder has no tokenizer.json or tokenizer.model"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\x00\x01\x02" * 50, b"hello world\n", "für".encode("latin1")])
def test_something_else(content, tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(content)
    with pytest.raises(DataError, match=r"is neither a tokenizer.json, nor a tiktoken"):
        load_tokenizer(tmp_path)
