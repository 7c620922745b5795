"""Merge lists from vocabularies that only rank their tokens (tiktoken, sentencepiece)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import AnyStr

__all__ = ["merges_of"]


def merges_of(ranks: Mapping[AnyStr, int]) -> list[tuple[AnyStr, AnyStr]]:
    """Return every pair of tokens that makes a token, by the rank of what it makes.

    A ranked vocabulary merges the pair whose union has the lowest rank, ``tokenizers`` the first pair
    in this list; of several pairs for one token the one with the shorter left half comes first.

    Args:
        ranks: Rank of each token that may be merged or made; lower merges first.
    """
    merges = []
    for token in sorted(ranks, key=ranks.__getitem__):
        cuts = ((token[:cut], token[cut:]) for cut in range(1, len(token)))
        merges += [(left, right) for left, right in cuts if left in ranks and right in ranks]
    return merges
