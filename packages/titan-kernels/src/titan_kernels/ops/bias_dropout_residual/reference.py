"""Dropout with a counter-based mask in plain PyTorch."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from titan_kernels.numerics import compute_dtype

__all__ = [
    "bias_dropout_residual",
    "bias_dropout_residual_backward",
    "is_random",
    "keep_mask",
    "philox",
    "scale",
    "threshold",
]

_WORD = 0xFFFF_FFFF
_MULTIPLIERS = 0xD251_1F53, 0xCD9E_8D57
_WEYL = 0x9E37_79B9, 0xBB67_AE85


def threshold(p: float) -> int:
    """An element is kept if its 32 random bits are no less than this: p in units of 2^-32."""
    return round(p * 2**32)


def scale(p: float) -> float:
    """What kept elements are multiplied by."""
    return 1.0 / (1.0 - p) if p < 1.0 else 0.0


def is_random(p: float, seed: Tensor | None) -> bool:
    """Whether the mask depends on the seed: not where everything is kept or everything dropped.

    Raises:
        ValueError: It does, and there is none.
    """
    random = threshold(p) not in (0, 2**32)
    if random and seed is None:
        raise ValueError(f"seed (None): p ({p}) needs one")
    return random


def philox(seed: Tensor, blocks: Tensor) -> Tensor:
    """Philox 4x32-10: four random words for each block number.

    Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC 2011.

    Args:
        seed: One int64, the key.
        blocks: (N), int64, the low half of the counter.

    Returns:
        (N, 4), int64 in [0, 2^32).
    """
    key = [seed & _WORD, seed >> 32 & _WORD]
    c0, c1 = blocks & _WORD, blocks >> 32 & _WORD
    c2 = c3 = torch.zeros_like(blocks)
    for _ in range(10):
        first, second = _MULTIPLIERS[0] * c0, _MULTIPLIERS[1] * c2  # modulo 2^64, which is enough
        c0, c2 = (second >> 32 & _WORD) ^ c1 ^ key[0], (first >> 32 & _WORD) ^ c3 ^ key[1]
        c1, c3 = second & _WORD, first & _WORD
        key = [(k + step) & _WORD for k, step in zip(key, _WEYL, strict=True)]
    return torch.stack((c0, c1, c2, c3), dim=-1)


def keep_mask(shape: torch.Size, seed: Tensor | None, offset: int, p: float, device: torch.device) -> Tensor:
    """Which elements of a tensor of this shape stay; ``seed`` may be absent where p is 0 or 1."""
    count = shape.numel()
    if not is_random(p, seed) or seed is None:
        return torch.full(shape, threshold(p) == 0, device=device)
    first = offset // 4
    blocks = torch.arange(first, (offset + count + 3) // 4, device=device)
    words = philox(seed.reshape(()), blocks).reshape(-1)[offset - 4 * first :][:count]
    return (words >= threshold(p)).view(shape)


def bias_dropout_residual(
    x: Tensor, bias: Tensor | None, residual: Tensor | None, seed: Tensor | None, offset: int, p: float
) -> Tensor:
    """See :func:`titan_kernels.ops.bias_dropout_residual`."""
    y = x.to(compute_dtype(x.dtype))
    if bias is not None:
        y = y + bias
    y = torch.where(keep_mask(x.shape, seed, offset, p, x.device), y * scale(p), 0.0)
    if residual is not None:
        y = y + residual
    return y.to(x.dtype if residual is None else residual.dtype).contiguous()


def bias_dropout_residual_backward(
    dy: Tensor,
    bias: Tensor | None,
    seed: Tensor | None,
    offset: int,
    p: float,
    dtype: torch.dtype | None,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of x, in ``dtype`` or that of dy, and of the bias; that of the residual is dy itself.

    ``output_mask`` says which of the two are wanted.
    """
    dx = dy.to(compute_dtype(dy.dtype)) * scale(p)
    dx = torch.where(keep_mask(dy.shape, seed, offset, p, dy.device), dx, 0.0)
    dbias = None
    if output_mask[1] and bias is not None:
        dbias = dx.unsqueeze(0).flatten(0, -2).sum(0).to(bias.dtype)
    return dx.to(dtype or dy.dtype).contiguous() if output_mask[0] else None, dbias
