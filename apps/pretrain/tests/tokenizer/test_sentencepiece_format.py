from __future__ import annotations

import pickle
import sys

import pytest

from titan_pretrain.errors import DataError, UsageError
from titan_pretrain.tokenizer import load_tokenizer

library = pytest.importorskip("sentencepiece")

OTHER_KINDS = {
    "unigram": {"model_type": "unigram"},
    "normalising": {"normalization_rule_name": "nmt_nfkc"},
    "no prefix": {"add_dummy_prefix": False},
    "no bytes": {"byte_fallback": False},
    "symbols": {"user_defined_symbols": ["[DOC]", "def"]},
    "no bos": {"bos_id": -1},
}


@pytest.fixture(params=["llama", *OTHER_KINDS])
def file(request, sentencepiece_file):
    return sentencepiece_file(request.param, **OTHER_KINDS.get(request.param, {}))


def test_ids_are_the_librarys(file, texts):
    tokenizer = load_tokenizer(file)
    processor = library.SentencePieceProcessor(model_file=str(file))
    for text in texts:
        ids = processor.encode(text)
        assert tokenizer.encode(text) == ids
        assert tokenizer.decode(ids) == processor.decode(ids)
    assert tokenizer.vocab_size == processor.vocab_size()
    assert tokenizer.eos_id == processor.eos_id()


def test_bos_follows_the_model(sentencepiece_file):
    assert load_tokenizer(sentencepiece_file()).bos_id == 1
    assert load_tokenizer(sentencepiece_file("no bos", **OTHER_KINDS["no bos"])).bos_id is None


def test_pickle(file, texts):
    tokenizer = load_tokenizer(file)
    copy = pickle.loads(pickle.dumps(tokenizer))
    assert [copy.encode(text) for text in texts[:50]] == [tokenizer.encode(text) for text in texts[:50]]
    assert copy.fingerprint == tokenizer.fingerprint


def test_saved_and_loaded(file, texts, tmp_path):
    tokenizer = load_tokenizer(file)
    tokenizer.save(tmp_path)
    assert (tmp_path / "tokenizer.model").read_bytes() == file.read_bytes()
    again = load_tokenizer(tmp_path)
    assert (again.bos_id, again.eos_id) == (tokenizer.bos_id, tokenizer.eos_id)
    assert [again.encode(text) for text in texts] == [tokenizer.encode(text) for text in texts]
    assert again.fingerprint == tokenizer.fingerprint


def test_tokenizer_json_only_where_it_is_exact(sentencepiece_file, tmp_path):
    exact = {"llama", "no bos", "no bytes"}
    for name in ("llama", *OTHER_KINDS):
        load_tokenizer(sentencepiece_file(name, **OTHER_KINDS.get(name, {}))).save(tmp_path / name)
    assert {
        name for name in ("llama", *OTHER_KINDS) if (tmp_path / name / "tokenizer.json").exists()
    } == exact


def test_auto_tokenizer_cuts_like_the_library(sentencepiece_file, texts, tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizer = load_tokenizer(sentencepiece_file())
    tokenizer.save(tmp_path)
    auto = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in texts:
        if "<s>" not in text and "</s>" not in text and "<unk>" not in text:
            assert auto.encode(text, add_special_tokens=False) == tokenizer.encode(text)
    assert auto.encode("a b") == [1, *tokenizer.encode("a b")]
    assert auto.decode(tokenizer.encode("  two  spaces")) == "  two  spaces"


def test_auto_tokenizer_reads_the_model_itself_otherwise(sentencepiece_file, tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizer = load_tokenizer(sentencepiece_file("symbols", **OTHER_KINDS["symbols"]))
    tokenizer.save(tmp_path)
    auto = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert auto.encode("some words", add_special_tokens=False) == tokenizer.encode("some words")
    assert auto.eos_token_id == tokenizer.eos_id


def test_truncated(sentencepiece_file, tmp_path):
    (tmp_path / "tokenizer.model").write_bytes(sentencepiece_file().read_bytes()[:-700])
    with pytest.raises(DataError, match="nor a complete sentencepiece model"):
        load_tokenizer(tmp_path)


def test_no_eos(sentencepiece_file):
    with pytest.raises(DataError, match="has no EOS"):
        load_tokenizer(sentencepiece_file("no eos", eos_id=-1))


def test_missing_package(sentencepiece_file, monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(UsageError, match=r"pip install 'torch-titan-pretrain\[sentencepiece\]'"):
        load_tokenizer(sentencepiece_file())
