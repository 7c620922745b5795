"""tokenizer.json."""

from __future__ import annotations

import json
import pickle

import pytest
import tokenizers

from titan_pretrain.errors import DataError
from titan_pretrain.tokenizer import load_tokenizer


def saved(tokenizer, folder, config=None):
    tokenizer.save(folder)
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    else:
        (folder / "tokenizer_config.json").unlink()
    return folder / "tokenizer.json"


def edited(file, change):
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    return file


def test_ids_are_the_librarys(bpe, texts, tmp_path):
    library = tokenizers.Tokenizer.from_file(str(saved(bpe, tmp_path)))
    library.encode_special_tokens = True
    for text in texts:
        assert bpe.encode(text) == library.encode(text, add_special_tokens=False).ids


def test_round_trip(bpe, texts):
    for text in texts:
        assert bpe.decode(bpe.encode(text)) == text


def test_special_tokens_in_a_text_are_text(bpe):
    ids = bpe.encode("a<|end_of_text|>b<|begin_of_text|>")
    assert bpe.eos_id not in ids
    assert bpe.bos_id not in ids
    assert bpe.decode([bpe.eos_id]) == "<|end_of_text|>"


def test_pickle(bpe, texts):
    copy = pickle.loads(pickle.dumps(bpe))
    assert [copy.encode(text) for text in texts[:100]] == [bpe.encode(text) for text in texts[:100]]
    assert (copy.eos_id, copy.bos_id, copy.fingerprint) == (bpe.eos_id, bpe.bos_id, bpe.fingerprint)


def test_truncation_and_padding_in_the_file_are_ignored(bpe, tmp_path):
    library = tokenizers.Tokenizer.from_file(str(saved(bpe, tmp_path)))
    library.enable_truncation(5)
    library.enable_padding(length=9)
    library.save(str(tmp_path / "tokenizer.json"))
    text = "some words " * 20
    assert load_tokenizer(tmp_path).encode(text) == bpe.encode(text)
    assert load_tokenizer(tmp_path).encode("a") == bpe.encode("a")


def test_fingerprint_tells_tokenizers_apart(bpe, corpus, tmp_path):
    from titan_pretrain.tokenizer import train_bpe

    assert load_tokenizer(saved(bpe, tmp_path)).fingerprint == bpe.fingerprint
    assert train_bpe(corpus, 1999).fingerprint != bpe.fingerprint
    other = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    other.normalizer = tokenizers.normalizers.NFKC()  # same vocabulary, other cuts
    other.save(str(tmp_path / "tokenizer.json"))
    assert load_tokenizer(tmp_path).fingerprint != bpe.fingerprint


@pytest.mark.parametrize(
    "config",
    [
        {"eos_token": "<|pad|>"},
        {"eos_token": {"content": "<|pad|>", "special": True}},
    ],
)
def test_eos_of_the_config_wins(config, bpe, tmp_path):
    assert load_tokenizer(saved(bpe, tmp_path, config)).eos_id == 2


def test_eos_by_its_usual_name(bpe, tmp_path):
    assert load_tokenizer(saved(bpe, tmp_path)).eos_id == bpe.eos_id


def test_bos_only_where_the_family_puts_it(bpe, tmp_path):
    file = saved(bpe, tmp_path)
    assert load_tokenizer(file).bos_id == bpe.bos_id
    edited(file, lambda content: content.update(post_processor=None))
    assert load_tokenizer(file).bos_id is None
    config = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert load_tokenizer(file).bos_id is None
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config | {"add_bos_token": True}))
    assert load_tokenizer(file).bos_id == 0


def test_config_is_kept_when_saved_again(bpe, tmp_path):
    config = {"eos_token": "<|end_of_text|>", "chat_template": "{{ messages }}", "model_max_length": 4096}
    load_tokenizer(saved(bpe, tmp_path, config)).save(tmp_path / "again")
    again = json.loads((tmp_path / "again" / "tokenizer_config.json").read_text())
    assert config.items() <= again.items()


def test_no_token_ends_a_document(tmp_path):
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    backend.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(
        DataError, match=r"no token is known to end a document; name it in a tokenizer_config.json"
    ):
        load_tokenizer(tmp_path)


def test_damaged_files(bpe, tmp_path):
    file = saved(bpe, tmp_path)
    content = file.read_text()
    for text in (content[: len(content) // 2], "{}", '{"model": 5}'):
        file.write_text(text)
        with pytest.raises(DataError, match=r"isn't a readable tokenizer.json"):
            load_tokenizer(file)
    file.write_text(content)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(DataError, match=r"tokenizer_config.json isn't JSON"):
        load_tokenizer(file)


@pytest.mark.parametrize("from_file", [False, True])
def test_auto_tokenizer_loads_it(from_file, bpe, texts, tmp_path):
    transformers = pytest.importorskip("transformers")
    tokenizer = bpe
    if from_file:
        bpe.save(tmp_path / "first")
        tokenizer = load_tokenizer(tmp_path / "first")
    tokenizer.save(tmp_path / "saved")
    auto = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
    for text in texts:
        if "<|" not in text:  # transformers reads special tokens in a text as such
            assert auto.encode(text, add_special_tokens=False) == bpe.encode(text)
    assert auto.encode("a b") == [bpe.bos_id, *bpe.encode("a b")]
    assert (auto.bos_token_id, auto.eos_token_id, len(auto)) == (bpe.bos_id, bpe.eos_id, bpe.vocab_size)
    assert auto.decode(bpe.encode("x , y ' s")) == "x , y ' s"
