"""``hf`` and ``c4``: datasets of the Hugging Face hub, or saved by its ``datasets`` library."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from titan_pretrain.config.sections import DataConfig
from titan_pretrain.data.files import data_files
from titan_pretrain.data.jsonl import jsonl_source
from titan_pretrain.data.records import missing_key, text_of
from titan_pretrain.data.source import DocumentSource, IndexedSource, Json, PartReader, StreamSource
from titan_pretrain.errors import DataError, PretrainError, UsageError
from titan_pretrain.extras import require

__all__ = ["HubStream", "HubTable", "c4_source", "hub_source"]

_C4 = "allenai/c4"
_C4_SUFFIXES = (".json.gz", ".jsonl.gz", ".json.zst", ".jsonl.zst", ".json", ".jsonl")


def c4_source(config: DataConfig) -> DocumentSource:
    """Open C4: the folder in ``data.path`` with its ``json.gz`` files, otherwise a stream from the hub.

    Raises:
        UsageError: The ``datasets`` package is missing, or the folder doesn't exist.
        DataError: The hub can't be reached.
    """
    if config.path:
        files = data_files("c4", config.path, _C4_SUFFIXES)
        # c4-train.00000-of-01024.json.gz: a folder may hold both splits.
        of_split = [str(file) for file in files if f"-{config.split}." in file.name]
        return jsonl_source("c4", of_split or [str(file) for file in files], config.text_key)
    chosen = config.model_copy(update={"path": (_C4,), "subset": config.subset or "en", "streaming": True})
    return hub_source(chosen)


def hub_source(config: DataConfig) -> DocumentSource:
    """Open what ``data.path`` names: a folder on this machine, or a dataset of the hub.

    Raises:
        UsageError: The ``datasets`` package or ``data.path`` is missing.
        DataError: The dataset doesn't exist, has no such split or subset, or can't be fetched.
    """
    if len(config.path) != 1:
        raise UsageError(
            f"data.path ({', '.join(config.path)}): data.dataset (hf) needs one folder or hub name"
        )
    library = require("datasets", "hf", f"data.dataset ({config.dataset})")
    with _translated_errors(config):
        dataset = _load(library, config)
    name = f"{config.dataset} {config.path[0]}"
    facts = {"path": Path(config.path[0]).name, "subset": config.subset or "", "split": config.split}
    if isinstance(dataset, library.IterableDataset):
        return HubStream(name, dataset, config.text_key, facts)
    return HubTable(name, dataset, config.text_key, facts)


def _load(library: Any, config: DataConfig) -> Any:
    path = Path(config.path[0]).expanduser()
    if (path / "state.json").exists():
        return library.load_from_disk(str(path))
    if (path / "dataset_dict.json").exists():
        return library.load_from_disk(str(path))[config.split]
    where = str(path) if path.exists() else config.path[0]
    return library.load_dataset(where, config.subset, split=config.split, streaming=config.streaming)


@contextmanager
def _translated_errors(config: DataConfig) -> Iterator[None]:
    try:
        yield
    except PretrainError:
        raise
    except Exception as error:  # the library raises its own, fsspec's and requests' exceptions
        reason = " ".join(str(error).split())[:300]
        raise DataError(
            f"data.path ({config.path[0]}), subset {config.subset}, split {config.split}: "
            f"{type(error).__name__}: {reason}; check the names, or give a local folder when offline"
        ) from error


class HubTable(IndexedSource):
    """A map-style dataset; a document is a row.

    Args:
        name: For messages.
        dataset: ``datasets.Dataset``.
        key: ``data.text_key``.
        facts: What tells it from other datasets.

    Raises:
        DataError: There are no rows, or no column ``key``.
    """

    def __init__(self, name: str, dataset: Any, key: str, facts: dict[str, str]) -> None:
        self.name = name
        self._key = key
        self._facts = facts
        if not len(dataset):
            raise DataError(f"data.dataset ({name}) has no rows")
        if key not in dataset.column_names:
            raise missing_key(key, dataset.column_names, f"data.dataset ({name})")
        self._dataset = dataset.select_columns([key])

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._dataset)

    def __getitem__(self, index: int) -> str:
        """Return the text of a row."""
        return text_of(self._dataset[index], self._key, f"row {index} of {self.name}")

    def identity(self) -> dict[str, str | int]:
        """Return name, subset, split and number of rows."""
        return {"dataset": "hf", **self._facts, "documents": len(self)}


class HubStream(StreamSource):
    """A streaming dataset; a part is one of its shards.

    Args:
        name: For messages.
        dataset: ``datasets.IterableDataset``.
        key: ``data.text_key``.
        facts: What tells it from other datasets.

    Raises:
        DataError: It is known to have no column ``key``.
    """

    def __init__(self, name: str, dataset: Any, key: str, facts: dict[str, str]) -> None:
        self.name = name
        self._key = key
        self._facts = facts
        columns = dataset.column_names
        if columns is not None and key not in columns:
            raise missing_key(key, columns, f"data.dataset ({name})")
        self._dataset = dataset if columns is None else dataset.select_columns([key])

    @property
    def num_parts(self) -> int:
        """Number of shards."""
        return int(self._dataset.num_shards)

    def open(self, part: int, state: Json = None) -> PartReader:
        """Open a shard."""
        shard = self._dataset.shard(num_shards=self.num_parts, index=part)
        return _HubReader(shard, self._key, state, f"shard {part} of {self.name}")

    def identity(self) -> dict[str, str | int]:
        """Return name, subset, split and number of shards."""
        return {"dataset": "hf", **self._facts, "parts": self.num_parts}


class _HubReader(PartReader):
    def __init__(self, dataset: Any, key: str, state: Json, where: str) -> None:
        self._dataset = dataset
        self._key = key
        self._where = where
        if state is not None:
            dataset.load_state_dict(state)
        # Plain iteration would split the shard once more among PyTorch's workers.
        self._rows = iter(dataset.iter(batch_size=1))

    def __next__(self) -> str:
        try:
            row = next(self._rows)
        except StopIteration:
            raise
        except Exception as error:  # of the network, of a damaged file, of the user's own map()
            reason = " ".join(str(error).split())[:300]
            raise DataError(f"{self._where} can't be read: {type(error).__name__}: {reason}") from error
        record = {name: values[0] for name, values in row.items()}
        return text_of(record, self._key, f"a row of {self._where}")

    def state(self) -> Json:
        """Return the library's own state."""
        return self._dataset.state_dict()
