from __future__ import annotations

import pytest

from titan_pretrain.config.sections import DataConfig
from titan_pretrain.data import build_source
from titan_pretrain.errors import UsageError


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("jsonlines", r"data.dataset \(jsonlines\) is unknown; did you mean 'jsonl'\?"),
        ("zzz", "use python-stdlib, text, jsonl, parquet, hf, c4 or module:function"),
    ],
)
def test_unknown_dataset(name, message):
    with pytest.raises(UsageError, match=message):
        build_source(DataConfig(dataset=name), seed=0)


def test_identity_tells_datasets_apart(kind, source_of, make_texts):
    source = source_of(kind)
    identity = source.identity()
    assert identity == source_of(kind).identity()
    assert all(isinstance(value, str | int) for value in identity.values())


def test_sample_is_spread_and_complete(kind, source_of, make_texts):
    texts = [f"text number {i}\n" for i in range(60)]
    sampled = list(source_of(kind, texts).sample())
    pieces_of_the_large_file = [text for text in sampled if text.startswith("a line")]
    assert bool(pieces_of_the_large_file) == (kind == "text")
    assert sorted(set(sampled) - set(pieces_of_the_large_file)) == sorted(texts)
    assert len(sampled) == len(texts) + len(pieces_of_the_large_file)
