"""Launches of the CUDA kernels of this room."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from titan_kernels.launch import Packed, launch
from titan_kernels.ops.rope.layout import like, position_table
from titan_kernels.platforms import cuda_ready, multiprocessors, suffix
from titan_kernels.registry import YES, Verdict, no

__all__ = ["contiguous_heads", "rope", "rope_", "supports", "supports_in_place"]

_UNIT = "rope"
_WARP, _WARPS, _ACCESS = 32, 4, 16
# As many as the registers of a multiprocessor allow: a warp's range of tokens is as long as it can be, and
# holds the same positions of several sequences.
_WARPS_PER_MULTIPROCESSOR = 24
_SHARED_LIMIT = 63 * 1024
_MOST_TOKENS = 2**30


def supports(
    q: Tensor,
    k: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None,
    interleaved: bool,
    inverse: bool,
) -> Verdict:
    """Whether :func:`rope` serves the call."""
    if (k is not None and k.dtype != q.dtype) or cos.dtype != sin.dtype:
        return no("q and k, or cos and sin, have different dtypes")
    if cos.dtype not in (q.dtype, torch.float32):
        return no(f"the tables' dtype ({cos.dtype}) is neither that of q ({q.dtype}) nor fp32")
    if q.shape[0] * q.shape[1] > _MOST_TOKENS or cos.shape[0] > _MOST_TOKENS:
        return no(f"it counts tokens and positions up to {_MOST_TOKENS}")
    if _shared(cos.shape[1], 1) > _SHARED_LIMIT:
        return no(f"{cos.shape[1]} pairs do not fit into shared memory")
    return cuda_ready(q, k, cos, sin, positions)


def contiguous_heads(q: Tensor, k: Tensor | None, *_: object) -> Verdict:
    """Whether the heads can be rotated where they are: contiguous, and apart from each other."""
    for x in (q, k):
        if x is None:
            continue
        if x.stride(3) != 1 or any(x.stride(i) == 0 and x.shape[i] > 1 for i in range(3)):
            return no("heads that are not contiguous, or expanded, cannot be rotated in place")
    return YES


def supports_in_place(
    q: Tensor,
    k: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None,
    interleaved: bool,
    inverse: bool,
) -> Verdict:
    """Whether :func:`rope_` serves the call."""
    where = contiguous_heads(q, k)
    return supports(q, k, cos, sin, positions, interleaved, inverse) if where.ok else where


def rope(
    q: Tensor,
    k: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None,
    interleaved: bool,
    inverse: bool,
) -> tuple[Tensor, Tensor | None]:
    """Out of place."""
    sources = [x if x.stride(3) == 1 else x.contiguous() for x in (q, k) if x is not None]
    targets = [like(x) for x in (q, k) if x is not None]
    _launch(sources, targets, cos, sin, positions, interleaved, inverse)
    return targets[0], None if k is None else targets[1]


def rope_(
    q: Tensor,
    k: Tensor | None,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None,
    interleaved: bool,
    inverse: bool,
) -> None:
    """In place."""
    tensors = [x for x in (q, k) if x is not None]
    _launch(tensors, tensors, cos, sin, positions, interleaved, inverse)


def _launch(
    sources: Sequence[Tensor],
    targets: Sequence[Tensor],
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None,
    interleaved: bool,
    inverse: bool,
) -> None:
    q, pairs = sources[0], cos.shape[1]
    batches, times, _, d = q.shape
    # In place the rest of a head is where it belongs.
    rest = 0 if targets is sources else d - 2 * pairs
    per_access = _pairs_per_access(q.dtype, interleaved)
    wide = _in_vectors((*sources, *targets), pairs, rest, per_access)
    stride = _stride(pairs, per_access if wide else 1)
    tokens_per_warp, grid = _share(batches * times, q.device)
    at = None if positions is None else position_table(positions, q)
    pairing, access = "interleaved" if interleaved else "half", "vectors" if wide else "elements"
    launch(
        _UNIT,
        f"rope_{pairing}_{suffix(q.dtype)}_{access}",
        grid,
        _WARPS * _WARP,
        (
            *(Packed(tensors, 2) for tensors in (sources, targets)),
            Packed([stride for tensors in (sources, targets) for stride in _strides(tensors)], 12),
            Packed([x.shape[2] for x in sources], 2),
            *_tables(cos.contiguous(), sin.contiguous(), q.dtype),
            cos.shape[0],
            -1.0 if inverse else 1.0,
            at,
            *((0, 0) if at is None else at.stride()),
            batches * times,
            batches,
            tokens_per_warp,
            pairs,
            rest,
            stride,
        ),
        shared=_shared(pairs, per_access if wide else 1),
    )


def _strides(tensors: Sequence[Tensor]) -> list[int]:
    """Of batch, time and head; zeros for a second tensor that is not there."""
    return [*(stride for x in tensors for stride in x.stride()[:3]), *(0,) * (3 * (2 - len(tensors)))]


def _tables(cos: Tensor, sin: Tensor, dtype: torch.dtype) -> tuple[Tensor | None, ...]:
    return (cos, sin, None, None) if cos.dtype == dtype else (None, None, cos, sin)


def _pairs_per_access(dtype: torch.dtype, interleaved: bool) -> int:
    return _ACCESS // dtype.itemsize // (2 if interleaved else 1)


def _in_vectors(tensors: Sequence[Tensor], pairs: int, rest: int, per_access: int) -> bool:
    """Whether every head's parts begin at multiples of 16 bytes."""
    itemsize = tensors[0].dtype.itemsize
    return (
        pairs % per_access == 0
        and rest * itemsize % _ACCESS == 0
        and all(x.data_ptr() % _ACCESS == 0 for x in tensors)
        and all(x.stride(i) * itemsize % _ACCESS == 0 for x in tensors for i in range(3) if x.shape[i] > 1)
    )


def _share(tokens: int, device: torch.device) -> tuple[int, int]:
    """Tokens per warp and blocks."""
    per_warp = -(-tokens // (multiprocessors(device) * _WARPS_PER_MULTIPROCESSOR))
    return per_warp, -(-tokens // (per_warp * _WARPS)) if tokens else 0


def _stride(pairs: int, per_access: int) -> int:
    """Stride of the tables' columns in shared memory, free of bank conflicts.

    Lanes fill them pair by pair, so they touch all ``per_access`` columns at once: an odd multiple of
    32 / per_access puts those into different banks.
    """
    step = _WARP // per_access
    return (-(-pairs // per_access // step) | 1) * step


def _shared(pairs: int, per_access: int) -> int:
    """Bytes of dynamic shared memory: a row of cosines and one of sines in fp32 per warp."""
    return _WARPS * 2 * per_access * _stride(pairs, per_access) * 4
