from __future__ import annotations

import base64

import pytest

from titan_pretrain.errors import DataError
from titan_pretrain.tokenizer import load_tokenizer
from titan_pretrain.tokenizer.bpe import LLAMA3_PATTERN


@pytest.fixture(scope="module")
def tokenizer(tiktoken_file):
    return load_tokenizer(tiktoken_file)


def read(file):
    lines = (line.split() for line in file.read_text().splitlines())
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def test_ids_are_tiktokens(tokenizer, tiktoken_file, texts):
    tiktoken = pytest.importorskip("tiktoken")
    ranks = read(tiktoken_file)
    library = tiktoken.Encoding("x", pat_str=LLAMA3_PATTERN, mergeable_ranks=ranks, special_tokens={})
    for text in texts:
        assert tokenizer.encode(text) == library.encode_ordinary(text)
        assert tokenizer.decode(library.encode_ordinary(text)) == text


def test_tokens_no_merge_leads_to(texts, tmp_path):
    """tiktoken takes a piece that is a token as a whole, even if its parts are none."""
    tiktoken = pytest.importorskip("tiktoken")
    ranks = {bytes([i]): i for i in range(256)} | {b" strange": 256, b"ab": 257, b"cd": 258, b"abcd": 259}
    file = tmp_path / "tokenizer.model"
    file.write_text("".join(f"{base64.b64encode(token).decode()} {rank}\n" for token, rank in ranks.items()))
    library = tiktoken.Encoding("x", pat_str=LLAMA3_PATTERN, mergeable_ranks=ranks, special_tokens={})
    for text in ("a strange abcd abcdabcd strangers", *texts):
        assert load_tokenizer(file).encode(text) == library.encode_ordinary(text)
        if text == texts[50]:
            break


def test_special_tokens(tokenizer, bpe):
    ranks = bpe.vocab_size - 3
    assert tokenizer.vocab_size == ranks + 256
    assert (tokenizer.bos_id, tokenizer.eos_id) == (ranks, ranks + 1)
    vocabulary = tokenizer.vocabulary()
    # As llama_models numbers them behind the ranks.
    for name, offset in (("<|start_header_id|>", 6), ("<|eot_id|>", 9), ("<|reserved_special_token_2|>", 12)):
        assert vocabulary[name] == ranks + offset
    assert vocabulary["<|reserved_special_token_245|>"] == ranks + 255
    assert tokenizer.eos_id not in tokenizer.encode("<|end_of_text|>")


def test_saved_as_tokenizer_json(tokenizer, texts, tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizer.save(tmp_path)
    assert load_tokenizer(tmp_path).fingerprint == tokenizer.fingerprint
    auto = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in texts:
        if "<|" not in text:
            assert auto.encode(text, add_special_tokens=False) == tokenizer.encode(text)
    assert auto.encode("a") == [tokenizer.bos_id, *tokenizer.encode("a")]


def test_other_families_are_refused(tmp_path):
    file = tmp_path / "tokenizer.model"
    file.write_text("".join(f"{base64.b64encode(str(i).encode()).decode()} {i}\n" for i in range(128_001)))
    with pytest.raises(DataError, match=r"has 128001 ranks: .* only Llama 3's .* tokenizer.json"):
        load_tokenizer(file)


def test_damaged_files(tiktoken_file, tmp_path):
    lines = tiktoken_file.read_text().splitlines()
    file = tmp_path / "tokenizer.model"
    for damaged, message in (
        ([*lines[:40], "not base64! x", *lines[41:]], r"tokenizer.model:41 isn't `base64 rank`"),
        ([*lines[:-1], lines[-1].split()[0]], rf"tokenizer.model:{len(lines)} isn't"),
        ([*lines[:40], *lines[41:]], "ranks are missing or doubled"),
    ):
        file.write_text("\n".join(damaged) + "\n")
        with pytest.raises(DataError, match=message):
            load_tokenizer(file)
