"""What a validation reads: the held-out documents, spread over few virtual shards."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from titan_pretrain.data.order import held_out_documents
from titan_pretrain.data.plan import Plan, legal_degrees
from titan_pretrain.data.source import DocumentSource, IndexedSource
from titan_pretrain.errors import UsageError

__all__ = ["Selection", "validation_view"]

# Few shards, so that a short validation reads on in its documents instead of seeing the first lines
# of many; but more than one, so that the ranks share the work.
_MAX_SHARDS = 16
_MAX_DOCUMENTS = 8192


class Selection(IndexedSource):
    """Some documents of an indexed source.

    Args:
        source: The source.
        indices: Which of its documents, ascending.
    """

    def __init__(self, source: IndexedSource, indices: list[int]) -> None:
        self.name = source.name
        self._source = source
        self._indices = indices

    def __len__(self) -> int:
        """Return the number of selected documents."""
        return len(self._indices)

    def __getitem__(self, index: int) -> str:
        """Return one document."""
        return self._source[self._indices[index]]

    @property
    def blocks(self) -> Sequence[int] | None:
        """Selected documents in each of the source's blocks."""
        sizes = self._source.blocks
        if sizes is None:
            return None
        starts = np.searchsorted(self._indices, np.concatenate([[0], np.cumsum(sizes)]))
        counts: list[int] = np.diff(starts).tolist()
        return counts

    def identity(self) -> dict[str, str | int]:
        """Return the source's identity."""
        return self._source.identity()

    def reopen(self) -> None:
        """Pass it on."""
        self._source.reopen()


def validation_view(source: DocumentSource, plan: Plan) -> tuple[DocumentSource, Plan]:
    """Return the documents of a validation as a source of their own, and the plan to deal them.

    The number of shards depends on the documents only, so that every number of ranks validates on the
    same sequences.  Of very many held-out documents an evenly spread selection is taken.  A stream
    is returned as it is: its held-out documents are picked out while it is read.

    Raises:
        UsageError: No document is held out.
    """
    if not isinstance(source, IndexedSource):
        return source, replace(plan, num_shards=_MAX_SHARDS)
    if plan.holdout:
        source = _held_out(source, plan.holdout)
    shards = max(degree for degree in legal_degrees(_MAX_SHARDS) if degree <= max(len(source), 1))
    return source, replace(plan, num_shards=shards, holdout=0.0)


def _held_out(source: IndexedSource, holdout: float) -> Selection:
    indices = held_out_documents(len(source), holdout)
    if len(source) and not indices.size:
        raise UsageError(
            f"validation.holdout ({holdout:g}) takes none of the {len(source)} documents of "
            f"data.dataset ({source.name}); raise it, or give validation.data a dataset of its own"
        )
    step = -(-indices.size // _MAX_DOCUMENTS)
    return Selection(source, indices[:: max(step, 1)].tolist())
