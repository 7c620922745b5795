"""Layer normalisation in plain PyTorch."""

from __future__ import annotations

from torch import Tensor

from titan_kernels.numerics import compute_dtype

__all__ = ["add_layer_norm", "layer_norm", "layer_norm_backward"]


def layer_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """See :func:`titan_kernels.ops.layer_norm`; also returns the mean and 1 / deviation per row."""
    wide = x.to(compute_dtype(x.dtype))
    mean = wide.mean(-1)
    centred = wide - mean.unsqueeze(-1)
    rstd = (centred.square().mean(-1) + eps).rsqrt()
    y = centred * rstd.unsqueeze(-1)
    if weight is not None:
        y = y * weight.to(wide.dtype)
    if bias is not None:
        y = y + bias.to(wide.dtype)
    return y.to(x.dtype), mean, rstd


def add_layer_norm(
    x: Tensor, residual: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The sum is rounded to the dtype of ``x`` before it is normalised, as two separate calls would do."""
    total = x + residual
    y, mean, rstd = layer_norm(total, weight, bias, eps)
    return y, total, mean, rstd


def layer_norm_backward(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    rstd: Tensor,
    dsum: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the normalised tensor (plus ``dsum``, its gradient by other ways) and the parameters."""
    wide, scale = compute_dtype(x.dtype), rstd.unsqueeze(-1)
    xhat = (x.to(wide) - mean.unsqueeze(-1)) * scale
    grad = dy.to(wide)
    g = grad if weight is None else grad * weight.to(wide)
    dx = scale * (g - g.mean(-1, keepdim=True) - xhat * (g * xhat).mean(-1, keepdim=True))
    if dsum is not None:
        dx = dx + dsum.to(wide)
    dweight = x.new_empty(0) if weight is None else _sum_rows(grad * xhat).to(weight.dtype)
    dbias = x.new_empty(0) if bias is None else _sum_rows(grad).to(bias.dtype)
    return dx.to(x.dtype), dweight, dbias


def _sum_rows(values: Tensor) -> Tensor:
    return values.unsqueeze(0).flatten(0, -2).sum(0)
