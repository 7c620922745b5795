"""What the loader needs to know of a dataset.

A source is either *indexed* (any document can be read at once) or a *stream* (parts that are read
from their start, again in every epoch).  Sources are small and picklable: files are opened in the
process that reads them.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from titan_pretrain.data.order import epoch_order

__all__ = ["DocumentSource", "IndexedSource", "Json", "ListSource", "PartReader", "StreamSource", "is_blank"]

Json: TypeAlias = Any
"""A value that survives ``json.dumps`` and ``json.loads``."""

_SAMPLED_PARTS = 8


def is_blank(text: str) -> bool:
    """Whether a document has nothing to learn from; such documents are skipped."""
    return not text or text.isspace()


class DocumentSource(ABC):
    """A dataset: an unordered set of texts.

    Attributes:
        name: ``data.dataset`` as the user typed it.
    """

    name: str

    @abstractmethod
    def identity(self) -> dict[str, str | int]:
        """Return what tells this dataset from another; stored in checkpoints and compared on resume."""

    @abstractmethod
    def sample(self) -> Iterator[str]:
        """Yield documents spread evenly over the dataset, each at most once."""

    def reopen(self) -> None:  # noqa: B027 - most sources hold nothing open
        """Forget open files, so that a process just forked doesn't share them with its parent."""


class IndexedSource(DocumentSource):
    """A dataset with random access."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of documents."""

    @abstractmethod
    def __getitem__(self, index: int) -> str:
        """Return one document.

        Raises:
            DataError: The document can't be read or has no text.
        """

    @property
    def blocks(self) -> Sequence[int] | None:
        """Sizes of the runs of documents that must be read together, or None for free access."""
        return None

    def sample(self) -> Iterator[str]:
        """Yield every document once, in a fixed shuffled order."""
        order = epoch_order(len(self), self.blocks, seed=0, epoch=0, shuffle=True)
        return (self[order(position)] for position in range(len(self)))


class ListSource(IndexedSource):
    """Documents held in memory."""

    def __init__(self, name: str, documents: Iterable[str]) -> None:
        self.name = name
        self._documents = tuple(documents)

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self._documents)

    def __getitem__(self, index: int) -> str:
        """Return one document."""
        return self._documents[index]

    def identity(self) -> dict[str, str | int]:
        """Return the number of documents and a hash of their text."""
        digest = hashlib.blake2b(digest_size=8)
        for document in self._documents:
            digest.update(hashlib.blake2b(document.encode("utf-8", "surrogatepass")).digest())
        return {"dataset": self.name, "documents": len(self), "content": digest.hexdigest()}


class PartReader(ABC):
    """Iterates over the documents of one part of a stream, from its start or from a saved state."""

    def __iter__(self) -> Iterator[str]:
        """Return itself."""
        return self

    @abstractmethod
    def __next__(self) -> str:
        """Return the next document."""

    def skip(self, count: int) -> None:
        """Pass over the next ``count`` documents; fewer if the part ends."""
        for _ in range(count):
            if next(self, None) is None:
                return

    def state(self) -> Json:
        """Return where the part stands, or None if it can't seek."""
        return None


class StreamSource(DocumentSource):
    """A dataset that can only be read in order, part by part."""

    @property
    @abstractmethod
    def num_parts(self) -> int:
        """Number of parts (files, or shards of a Hugging Face dataset)."""

    @abstractmethod
    def open(self, part: int, state: Json = None) -> PartReader:
        """Open a part at its start, or where :meth:`PartReader.state` was taken.

        Raises:
            DataError: The part can't be read.
        """

    def sample(self) -> Iterator[str]:
        """Yield documents of a few parts in turn."""
        count = min(self.num_parts, _SAMPLED_PARTS)
        readers = [self.open(i * self.num_parts // count) for i in range(count)]
        while readers:
            for reader in tuple(readers):
                document = next(reader, None)
                if document is None:
                    readers.remove(reader)
                else:
                    yield document
