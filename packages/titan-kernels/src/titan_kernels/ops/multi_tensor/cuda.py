"""Launches of the CUDA kernels of this room."""

from __future__ import annotations

import torch
from torch import Tensor

from titan_kernels.launch import Packed, launch
from titan_kernels.ops.multi_tensor.chunks import Batch, batches, in_memory_order
from titan_kernels.platforms import cuda_ready, suffix
from titan_kernels.registry import Verdict, no

__all__ = ["multi_tensor_cast", "multi_tensor_norm", "supports_cast", "supports_norm"]

_UNIT = "multi_tensor"
_THREADS = 256
_TOTAL_THREADS = 1024
_TENSORS_OF_A_BLOCK = _THREADS // 32
# Tensors of a launch, as in kernel.cu.
_NORM_TENSORS = 200
_CAST_TENSORS = 144


def supports_norm(tensors: list[Tensor], per_tensor: bool) -> Verdict:
    """Whether :func:`multi_tensor_norm` serves the call."""
    return cuda_ready(*tensors)


def supports_cast(
    sources: list[Tensor], targets: list[Tensor], scale: Tensor | None, factor: float
) -> Verdict:
    """Whether :func:`multi_tensor_cast` serves the call."""
    if scale is not None and scale.dtype != torch.float32:
        return no(f"the scale's dtype ({scale.dtype}) is not fp32")
    return cuda_ready(*sources, *targets, scale)


def multi_tensor_norm(tensors: list[Tensor], per_tensor: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """A pass per dtype and 200 tensors, and one over their records."""
    flat = [x.contiguous() if (dense := in_memory_order(x)) is None else dense for x in tensors]
    every = list(batches(flat, [x.dtype for x in flat], _NORM_TENSORS))
    records = sum(batch.chunks for batch in every)
    fresh = tensors[0].new_empty
    squares, strange = (fresh(records, dtype=torch.float32) for _ in range(2))
    for batch in every:
        x = batch.pick(flat)
        launch(
            _UNIT,
            f"multi_tensor_norm_{suffix(flat[batch.places[0]].dtype)}",
            batch.chunks,
            _THREADS,
            (x, *_sizes(batch), squares, strange, batch.before),
        )
    norm, found = (fresh((), dtype=torch.float32) for _ in range(2))
    launch(_UNIT, "multi_tensor_norm_total", 1, _TOTAL_THREADS, (squares, strange, norm, found, records))
    return norm, found, _each(every, squares, len(tensors)) if per_tensor else None


def _each(every: list[Batch], squares: Tensor, tensors: int) -> Tensor:
    norms = squares.new_zeros(tensors)
    for batch in every:
        launch(
            _UNIT,
            "multi_tensor_norm_each",
            -(-len(batch.places) // _TENSORS_OF_A_BLOCK),
            _THREADS,
            (
                squares[batch.before :],
                norms,
                batch.packed_first(),
                Packed(batch.places, batch.capacity),
                len(batch.places),
            ),
        )
    return norms


def multi_tensor_cast(
    sources: list[Tensor], targets: list[Tensor], scale: Tensor | None, factor: float
) -> None:
    """A pass per pair of dtypes and 144 tensors."""
    pairs = [_pair(source, target) for source, target in zip(sources, targets, strict=True)]
    read, written = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    for batch in batches(read, [(s.dtype, d.dtype) for s, d in pairs], _CAST_TENSORS):
        source, target = pairs[batch.places[0]]
        launch(
            _UNIT,
            f"multi_tensor_cast_{suffix(source.dtype)}_{suffix(target.dtype)}",
            batch.chunks,
            _THREADS,
            (batch.pick(read), batch.pick(written), *_sizes(batch), scale, factor),
        )
    for (_, target), original in zip(pairs, targets, strict=True):
        if target.data_ptr() != original.data_ptr():
            original.copy_(target)


def _pair(source: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Both in the same order of memory; a target that is not dense is written through a copy."""
    dense = in_memory_order(target)
    if dense is not None and source.stride() == target.stride():
        order = sorted(range(target.dim()), key=target.stride, reverse=True)
        return source.permute(order), dense
    return source.contiguous(), target if target.is_contiguous() else torch.empty_like(
        target, memory_format=torch.contiguous_format
    )


def _sizes(batch: Batch) -> tuple[Packed, Packed, int]:
    return batch.packed_counts(), batch.packed_first(), len(batch.places)
