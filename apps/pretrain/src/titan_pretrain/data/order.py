"""Which document comes when: keyed permutations and the validation hold-out.

Everything here is a pure function of (seed, epoch, position), so that no list of indices is kept in
memory or in a checkpoint.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = [
    "Identity",
    "Order",
    "epoch_order",
    "hash64",
    "held_out_documents",
    "is_held_out",
    "key64",
    "permute_list",
]

_MASK = (1 << 64) - 1
_ROUNDS = 6
_CHUNK = 1 << 20


def hash64(value: int) -> int:
    """Mix 64 bits so that every input bit flips half of the output bits (splitmix64's finaliser).

    Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
    """
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


def key64(*parts: int | str) -> int:
    """Derive an independent 64-bit key from a list of names and numbers."""
    digest = hashlib.blake2b(repr(parts).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def is_held_out(document: int, holdout: float) -> bool:
    """Whether a document belongs to the validation share.

    The seed has no part in it, so that two runs with different seeds validate on the same text.
    """
    return hash64(document) < _threshold(holdout)


def _threshold(share: float) -> int:
    return int(share * 2.0**64)


@lru_cache(maxsize=4)
def held_out_documents(n: int, holdout: float) -> npt.NDArray[np.int64]:
    """Return the held-out ones of the documents ``[0, n)``, ascending.

    The same hash as :func:`is_held_out`, for a million documents at a time.
    """
    found = [np.zeros(0, dtype=np.int64)]
    for start in range(0, n, _CHUNK):
        documents = np.arange(start, min(start + _CHUNK, n), dtype=np.uint64)
        found.append(documents[_hash64_array(documents) < np.uint64(_threshold(holdout))].astype(np.int64))
    return np.concatenate(found)


def _hash64_array(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    value ^= value >> np.uint64(31)
    return value


class Order(Protocol):
    """The order of one epoch: maps a position in ``[0, n)`` to a document in ``[0, n)``."""

    def __call__(self, position: int) -> int:
        """Return the document at ``position``."""
        ...


class Identity:
    """Documents as they lie in the dataset."""

    def __call__(self, position: int) -> int:
        """Return ``position``."""
        return position


class Permutation:
    """A bijection of ``[0, n)`` in constant memory.

    A Feistel network over ``Z_a x Z_b`` with ``a * b >= n`` just above n, and cycle walking for the
    few values beyond it (Black and Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002).
    """

    def __init__(self, n: int, key: int) -> None:
        self._n = n
        self._a = math.isqrt(max(n - 1, 0)) + 1
        self._b = -(-n // self._a)
        self._keys = [hash64(key ^ hash64(i)) for i in range(_ROUNDS)]

    def __call__(self, position: int) -> int:
        """Return the document at ``position``."""
        value = self._network(position)
        while value >= self._n:
            value = self._network(value)
        return value

    def _network(self, value: int) -> int:
        left_size, right_size = self._a, self._b
        left, right = value % left_size, value // left_size
        for key in self._keys:
            left, right = right, (left + hash64(key ^ right)) % left_size
            left_size, right_size = right_size, left_size
        return left + left_size * right


class BlockPermutation:
    """Blocks in permuted order, and permuted documents inside each block.

    For sources that read a block at once (a parquet row group): neighbours in the order stay
    neighbours on disk, so that each block is read about once per epoch.
    """

    def __init__(self, sizes: Sequence[int], key: int) -> None:
        block_order = Permutation(len(sizes), key64("blocks", key))
        self._blocks = [block_order(i) for i in range(len(sizes))]
        self._key = key
        self._sizes = sizes
        self._document_starts = _starts(np.asarray(sizes, dtype=np.int64))
        self._position_starts = _starts(np.asarray([sizes[i] for i in self._blocks], dtype=np.int64))

    def __call__(self, position: int) -> int:
        """Return the document at ``position``."""
        turn = int(np.searchsorted(self._position_starts, position, side="right")) - 1
        block = self._blocks[turn]
        inside = _block_permutation(self._sizes[block], key64(self._key, block))
        return int(self._document_starts[block]) + inside(position - int(self._position_starts[turn]))


def _starts(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes)[:-1]])


@lru_cache(maxsize=256)
def _block_permutation(size: int, key: int) -> Permutation:
    return Permutation(size, key)


def epoch_order(n: int, blocks: Sequence[int] | None, *, seed: int, epoch: int, shuffle: bool) -> Order:
    """Return the document order of one epoch.

    Args:
        n: Number of documents.
        blocks: Sizes of the runs of documents that are read together, or None.
        seed: Seed of the run.
        epoch: Epoch, from 0.
        shuffle: False keeps the dataset's own order in every epoch.
    """
    if not shuffle:
        return Identity()
    key = key64("documents", seed, epoch)
    return BlockPermutation(blocks, key) if blocks else Permutation(n, key)


def permute_list(n: int, *key: int | str) -> list[int]:
    """Return ``[0, n)`` in an order keyed by ``key``."""
    order = Permutation(n, key64(*key))
    return [order(i) for i in range(n)]
