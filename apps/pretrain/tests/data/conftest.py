"""Small sources, a transparent tokenizer, and helpers to compare orders of sequences."""

from __future__ import annotations

import gzip
import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from titan_pretrain.config.sections import DataConfig
from titan_pretrain.data import DocumentSource, TokenLoader, build_source, merge_states
from titan_pretrain.data.source import ListSource
from titan_pretrain.tokenizer import Tokenizer

BOS, EOS = 256, 257


class ByteTokenizer(Tokenizer):
    """One token per byte, so that tests can compute tokens by hand."""

    def __init__(self, bos: bool = True) -> None:
        self.eos_id = EOS
        self.bos_id = BOS if bos else None

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(i for i in ids if i < 256).decode()

    def vocabulary(self) -> dict[str, int]:
        return {str(i): i for i in range(258)}

    def save(self, folder: Path) -> None:
        raise AssertionError("not needed")


@pytest.fixture
def tokenizer() -> Tokenizer:
    return ByteTokenizer()


@pytest.fixture
def tokenizer_without_bos() -> Tokenizer:
    return ByteTokenizer(bos=False)


def texts_of(count: int, seed: int = 0) -> list[str]:
    """Distinct texts of very different lengths; every tenth is empty."""
    rng = random.Random(seed)
    return ["" if i % 10 == 7 else f"<{i}>" + "x" * int(rng.paretovariate(0.9)) for i in range(count)]


@pytest.fixture
def make_texts() -> Callable[..., list[str]]:
    return texts_of


@pytest.fixture
def list_source() -> Callable[..., ListSource]:
    return lambda count, seed=0: ListSource("list", texts_of(count, seed))


@pytest.fixture
def make_loader(tokenizer: Tokenizer) -> Iterator[Callable[..., TokenLoader]]:
    """Build loaders with defaults, and close them after the test."""
    loaders = []

    def make(source: DocumentSource, **options: Any) -> TokenLoader:
        defaults: dict[str, Any] = {
            "seq_len": 16,
            "micro_batch_size": 2,
            "dp_rank": 0,
            "dp_size": 1,
            "seed": 3,
            "shuffle": True,
            "document_mask": True,
            "workers": 0,
        }
        loader = TokenLoader(source, options.pop("tokenizer", tokenizer), **(defaults | options))
        loaders.append(loader)
        return loader

    yield make
    for loader in loaders:
        loader.close()


@pytest.fixture
def take() -> Callable[[TokenLoader, int], list[str]]:
    """Hashes of the next ``batches`` micro-batches."""
    return lambda loader, batches: [name for _ in range(batches) for name in next(loader).hashes]


class Ranks:
    """All data-parallel ranks of a run, in one process."""

    def __init__(
        self, make: Callable[..., TokenLoader], source: DocumentSource, dp: int, **options: Any
    ) -> None:
        self.loaders = [make(source, dp_rank=rank, dp_size=dp, **options) for rank in range(dp)]

    def take(self, sequences: int) -> list[str]:
        """Hashes of the next global sequences, in global order; micro-batches hold two sequences."""
        rounds = sequences // (2 * len(self.loaders))
        hashes = []
        for _ in range(rounds):
            batches = [next(loader).hashes for loader in self.loaders]
            hashes += [batch[i] for i in range(2) for batch in batches]
        return hashes

    def state(self) -> dict[str, Any]:
        """The merged state, after a trip through JSON."""
        merged = merge_states([json.loads(json.dumps(loader.state_dict())) for loader in self.loaders])
        return json.loads(json.dumps(merged))

    def load(self, state: dict[str, Any]) -> None:
        for loader in self.loaders:
            loader.load_state_dict(state)

    def close(self) -> None:
        for loader in self.loaders:
            loader.close()


@pytest.fixture
def ranks(make_loader: Callable[..., TokenLoader]) -> Callable[..., Ranks]:
    return lambda source, dp, **options: Ranks(make_loader, source, dp, **options)


def write_jsonl(file: Path, texts: Sequence[str]) -> Path:
    opener = gzip.open if file.suffix == ".gz" else open
    with opener(file, "wt", encoding="utf-8") as handle:
        handle.writelines(json.dumps({"text": text, "id": i}) + "\n" for i, text in enumerate(texts))
    return file


@pytest.fixture
def jsonl_file() -> Callable[[Path, Sequence[str]], Path]:
    return write_jsonl


def _parquet(folder: Path, texts: Sequence[str]) -> DataConfig:
    import pyarrow as pa
    import pyarrow.parquet as pq

    half = len(texts) // 2
    for name, part in (("a", texts[:half]), ("b", texts[half:])):
        pq.write_table(pa.table({"text": list(part)}), folder / f"{name}.parquet", row_group_size=7)
    return DataConfig(dataset="parquet", path=(str(folder),))


def _jsonl(folder: Path, texts: Sequence[str], suffix: str, files: int) -> DataConfig:
    for i in range(files):
        write_jsonl(folder / f"part{i:02}{suffix}", texts[i::files])
    return DataConfig(dataset="jsonl", path=(str(folder),))


def _text(folder: Path, texts: Sequence[str]) -> DataConfig:
    (folder / "big.txt").write_text("a line of a large file\n" * 2000, encoding="utf-8")
    for i, text in enumerate(texts):
        (folder / f"{i}.txt").write_text(text, encoding="utf-8")
    return DataConfig(dataset="text", path=(str(folder),))


def _hub(folder: Path, texts: Sequence[str], streaming: bool) -> DataConfig:
    _jsonl(folder, texts, ".jsonl", files=4)
    return DataConfig(dataset="hf", path=(str(folder),), streaming=streaming)


def _user(folder: Path, texts: Sequence[str], function: str) -> DataConfig:
    (folder / "texts.json").write_text(json.dumps(list(texts)))
    code = Path(__file__).with_name("user_code.txt").read_text(encoding="utf-8")
    (folder / "user_documents.py").write_text(code.replace("FOLDER", str(folder)))
    return DataConfig(dataset=f"user_documents:{function}")


KINDS: dict[str, Callable[[Path, Sequence[str]], DataConfig]] = {
    "text": _text,
    "jsonl": lambda folder, texts: _jsonl(folder, texts, ".jsonl", files=2),
    "jsonl.gz": lambda folder, texts: _jsonl(folder, texts, ".jsonl.gz", files=5),
    "one jsonl.gz": lambda folder, texts: _jsonl(folder, texts, ".jsonl.gz", files=1),
    "parquet": _parquet,
    "hf table": lambda folder, texts: _hub(folder, texts, streaming=False),
    "hf stream": lambda folder, texts: _hub(folder, texts, streaming=True),
    "user list": lambda folder, texts: _user(folder, texts, "as_list"),
    "user generator": lambda folder, texts: _user(folder, texts, "as_generator"),
    "user seekable": lambda folder, texts: _user(folder, texts, "seekable"),
}


@pytest.fixture
def source_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., DocumentSource]:
    """Write the texts as one of the kinds of dataset, and open it."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(str(tmp_path / "data"))

    def build(kind: str, texts: Sequence[str] | None = None) -> DocumentSource:
        sys.modules.pop("user_documents", None)
        folder = tmp_path / "data"
        folder.mkdir(exist_ok=True)
        return build_source(KINDS[kind](folder, texts if texts is not None else texts_of(60)), seed=0)

    return build


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kind" in metafunc.fixturenames:
        metafunc.parametrize("kind", KINDS)
