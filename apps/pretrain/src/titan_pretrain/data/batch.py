"""Micro-batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from titan_pretrain.data.packing import IGNORED, TokenSequence

__all__ = ["Batch", "make_batch"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """One micro-batch of B sequences of T tokens.

    Attributes:
        tokens: (B, T) int64.
        labels: (B, T) int64, the next token; -100 where there is no loss.
        positions: (B, T) int64, from 0 at the start of each document (or sequence).
        document_ids: (B, T) int32, 0, 1, 2... within each sequence.
        num_valid: Labels that aren't -100.
        hashes: One short hash of the tokens per sequence.
    """

    tokens: Tensor
    labels: Tensor
    positions: Tensor
    document_ids: Tensor
    num_valid: int
    hashes: tuple[str, ...]


def make_batch(sequences: Sequence[TokenSequence], *, document_mask: bool) -> Batch:
    """Stack sequences into a micro-batch.

    Args:
        sequences: B sequences of equal length.
        document_mask: Keep documents apart: no loss across their border, positions restart.
    """
    tokens = np.stack([sequence.tokens for sequence in sequences]).astype(np.int64)
    labels = tokens[:, 1:].copy()
    positions = np.broadcast_to(np.arange(labels.shape[1]), labels.shape).copy()
    document_ids = np.zeros(labels.shape, dtype=np.int32)
    if document_mask:
        for row, sequence in enumerate(sequences):
            _separate(sequence, labels[row], positions[row], document_ids[row])
    return Batch(
        tokens=torch.from_numpy(tokens[:, :-1].copy()),
        labels=torch.from_numpy(labels),
        positions=torch.from_numpy(positions),
        document_ids=torch.from_numpy(document_ids),
        num_valid=int((labels != IGNORED).sum()),
        hashes=tuple(sequence.hash for sequence in sequences),
    )


def _separate(
    sequence: TokenSequence, labels: Ints, positions: Ints, document_ids: npt.NDArray[np.int32]
) -> None:
    """Mask the labels and renumber the positions of one sequence, in place."""
    lengths = np.array(sequence.lengths)
    ends = np.cumsum(lengths)
    positions -= np.repeat(ends - lengths, lengths)
    document_ids[:] = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    labels[ends[:-1] - 1] = IGNORED
    if not sequence.continues:
        labels[-1] = IGNORED
