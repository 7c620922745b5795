"""The operators; each has a room of its own, see ``docs/adding-a-kernel.md``."""

from titan_kernels.ops.bias_dropout_residual import bias_dropout_residual
from titan_kernels.ops.cross_entropy import (
    CrossEntropy,
    PartialCrossEntropy,
    cross_entropy,
    cross_entropy_from_partial,
    cross_entropy_partial,
    cross_entropy_shard_gradient,
    merge_partials,
)
from titan_kernels.ops.embedding import embedding, embedding_gradient
from titan_kernels.ops.glu import geglu, relu2, swiglu
from titan_kernels.ops.layer_norm import layer_norm
from titan_kernels.ops.multi_tensor import multi_tensor_cast, multi_tensor_norm
from titan_kernels.ops.reduce import reduce, var_mean
from titan_kernels.ops.rms_norm import rms_norm
from titan_kernels.ops.rope import rope, rope_qk
from titan_kernels.ops.softmax import softmax

__all__ = [
    "CrossEntropy",
    "PartialCrossEntropy",
    "bias_dropout_residual",
    "cross_entropy",
    "cross_entropy_from_partial",
    "cross_entropy_partial",
    "cross_entropy_shard_gradient",
    "embedding",
    "embedding_gradient",
    "geglu",
    "layer_norm",
    "merge_partials",
    "multi_tensor_cast",
    "multi_tensor_norm",
    "reduce",
    "relu2",
    "rms_norm",
    "rope",
    "rope_qk",
    "softmax",
    "swiglu",
    "var_mean",
]
