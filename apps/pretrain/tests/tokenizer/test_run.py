"""Which tokenizer a run takes."""

from __future__ import annotations

import pytest

from titan_pretrain.config.sections import TrainConfig
from titan_pretrain.data.source import ListSource
from titan_pretrain.errors import DataError, UsageError
from titan_pretrain.tokenizer import tokenizer_for_run


def config(path=None, vocab_size=None, rows=600):
    return TrainConfig.model_validate(
        {"tokenizer": {"path": path, "vocab_size": vocab_size}, "model": {"vocab_size": rows}}
    )


class Untouchable(ListSource):
    """A dataset that must not be read."""

    def sample(self):
        raise AssertionError("read although there is a tokenizer")


@pytest.fixture
def source(corpus):
    return ListSource("list", corpus)


def test_trained_and_kept(source, tmp_path):
    tokenizer = tokenizer_for_run(config(), source, tmp_path)
    assert tokenizer.vocab_size == 600
    assert sorted(file.name for file in (tmp_path / "tokenizer").iterdir()) == [
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    again = tokenizer_for_run(config(), Untouchable("list", []), tmp_path)
    assert again.fingerprint == tokenizer.fingerprint


def test_size_of_its_own(source, tmp_path):
    assert tokenizer_for_run(config(vocab_size=400), source, tmp_path).vocab_size == 400


def test_path_wins(bpe, tmp_path):
    bpe.save(tmp_path / "mine")
    tokenizer = tokenizer_for_run(config(str(tmp_path / "mine"), rows=2000), Untouchable("x", []), tmp_path)
    assert tokenizer.fingerprint == bpe.fingerprint
    assert (tmp_path / "tokenizer").exists()  # a copy, so that the run folder is complete


def test_too_many_tokens_for_the_model(bpe, source, tmp_path):
    bpe.save(tmp_path / "mine")
    message = r"\(.*mine\) has 2000 tokens, model.vocab_size is 1999: set model.vocab_size to at least 2000"
    with pytest.raises(UsageError, match=message):
        tokenizer_for_run(config(str(tmp_path / "mine"), rows=1999), source, tmp_path)
    with pytest.raises(UsageError, match=r"tokenizer.path \(trained in this run\) has 500 tokens"):
        tokenizer_for_run(config(vocab_size=500, rows=400), source, tmp_path)


def test_only_the_first_part_of_a_large_dataset_is_read(corpus, tmp_path, monkeypatch):
    monkeypatch.setattr("titan_pretrain.tokenizer.run._TRAINING_TEXT", 5000)
    read = []

    class Counting(ListSource):
        def __getitem__(self, index):
            read.append(index)
            return super().__getitem__(index)

    tokenizer_for_run(config(), Counting("list", [text[:100] + "x" * 900 for text in corpus * 100]), tmp_path)
    assert len(read) == 5
    assert max(read) - min(read) > 1000  # spread over the dataset


def test_half_a_tokenizer_is_never_left(source, tmp_path, monkeypatch):
    from titan_pretrain.tokenizer.fast import FastTokenizer

    def fail(self, folder):
        (folder / "tokenizer.json").write_text("{")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(FastTokenizer, "save", fail)
        with pytest.raises(DataError, match=r"can't be saved in .*tokenizer: No space left on device"):
            tokenizer_for_run(config(), source, tmp_path)
    assert tokenizer_for_run(config(), source, tmp_path).vocab_size == 600


def test_run_folder_that_cannot_be_written(source, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="can't be saved"):
        tokenizer_for_run(config(), source, tmp_path / "file")
