"""Hugging Face datasets from local folders; the hub itself is never reached."""

from __future__ import annotations

import collections
import gzip
import json
import sys

import pytest

datasets = pytest.importorskip("datasets")

from titan_pretrain.config.sections import DataConfig  # noqa: E402
from titan_pretrain.data import build_source  # noqa: E402
from titan_pretrain.data.hub import HubStream, HubTable  # noqa: E402
from titan_pretrain.data.jsonl import JsonlStream  # noqa: E402
from titan_pretrain.errors import DataError, UsageError  # noqa: E402


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)


@pytest.fixture
def folder(tmp_path):
    for part in range(3):
        rows = [{"text": f"p{part}d{i}", "url": "u"} for i in range(10)]
        (tmp_path / f"train-{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def hub(path, **options):
    return build_source(DataConfig(dataset="hf", path=(str(path),), **options), seed=0)


def test_stream_has_a_part_per_file(folder):
    source = hub(folder)
    assert isinstance(source, HubStream)
    assert source.num_parts == 3
    assert list(source.open(1)) == [f"p1d{i}" for i in range(10)]


def test_stream_seeks(folder):
    source = hub(folder)
    for stop in range(10):
        reader = source.open(2)
        for _ in range(stop):
            next(reader)
        state = json.loads(json.dumps(reader.state()))
        assert list(source.open(2, state)) == [f"p2d{i}" for i in range(stop, 10)]


def test_table(folder):
    source = hub(folder, streaming=False)
    assert isinstance(source, HubTable)
    assert collections.Counter(source[i] for i in range(30)) == collections.Counter(
        f"p{part}d{i}" for part in range(3) for i in range(10)
    )


@pytest.mark.parametrize("as_dict", [True, False])
def test_saved_to_disk(as_dict, tmp_path):
    dataset = datasets.Dataset.from_dict({"text": ["a", "b"]})
    (datasets.DatasetDict(train=dataset) if as_dict else dataset).save_to_disk(tmp_path / "saved")
    source = hub(tmp_path / "saved")
    assert [source[0], source[1]] == ["a", "b"]


@pytest.mark.parametrize("streaming", [True, False])
def test_mistakes(streaming, folder):
    with pytest.raises(DataError, match=r"split tarin: .*train"):
        hub(folder, split="tarin", streaming=streaming)
    with pytest.raises(DataError, match=r"subset nothing,.*nothing"):
        hub(folder, subset="nothing", streaming=streaming)
    with pytest.raises(DataError, match=r"data.path \(no/such\).*give a local folder when offline"):
        hub("no/such", streaming=streaming)
    source_or_error = pytest.raises(DataError, match=r"data.text_key \(txt\); did you mean 'text'\?")
    with source_or_error:
        source = hub(folder, text_key="txt", streaming=streaming)
        next(source.open(0))


def test_several_paths():
    with pytest.raises(UsageError, match="needs one folder or hub name"):
        build_source(DataConfig(dataset="hf", path=("a", "b")), seed=0)


def test_missing_package(monkeypatch, folder):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        UsageError, match=r"needs the package datasets: pip install 'torch-titan-pretrain\[hf\]'"
    ):
        hub(folder)


def test_damaged_file_while_streaming(folder, make_loader, take):
    (folder / "train-1.jsonl").write_text('{"text": "a", "url": "u"}\n{"text": \n')
    source = hub(folder)
    for workers in (0, 2):
        loader = make_loader(source, workers=workers)
        with pytest.raises(DataError, match=r"shard 1 of hf .* can't be read"):
            take(loader, 20)


def test_c4_from_a_local_folder(tmp_path):
    for split in ("train", "validation"):
        with gzip.open(tmp_path / f"c4-{split}.00000-of-00001.json.gz", "wt") as handle:
            handle.write(json.dumps({"text": f"some {split} text", "url": "u"}) + "\n")
    for split in ("train", "validation"):
        source = build_source(DataConfig(dataset="c4", path=(str(tmp_path),), split=split), seed=0)
        assert isinstance(source, JsonlStream)
        assert list(source.open(0)) == [f"some {split} text"]
        assert source.num_parts == 1


def test_c4_offline_without_a_folder():
    with pytest.raises(DataError, match=r"data.path \(allenai/c4\), subset en, split train: .*local folder"):
        build_source(DataConfig(dataset="c4"), seed=0)
