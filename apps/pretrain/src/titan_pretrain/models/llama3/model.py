"""The Llama 3 decoder, single-device code; sharding is applied from outside.

Shape letters: B batch, T sequence, D model width, H query heads, K key/value heads, E head width,
F feed-forward width, V vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from titan_parallel.init import counter_trunc_normal_
from titan_pretrain.config.sections import ModelConfig
from titan_pretrain.models.llama3.rope import apply_rope, rope_cos_sin

__all__ = ["Llama3"]


class Attention(nn.Module):
    """Causal grouped-query attention (Ainslie et al., arXiv:2305.13245)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        kv_dim = config.n_kv_heads * config.head_dim
        self.wq = nn.Linear(config.dim, config.dim, bias=False)
        self.wk = nn.Linear(config.dim, kv_dim, bias=False)
        self.wv = nn.Linear(config.dim, kv_dim, bias=False)
        self.wo = nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        """(B, T, D) -> (B, T, D); ``mask`` (B, 1, T, T) is True where attention may look."""
        q = apply_rope(self._heads(self.wq(x)), cos, sin)
        k = apply_rope(self._heads(self.wk(x)), cos, sin)
        v = self._heads(self.wv(x))
        out = F.scaled_dot_product_attention(q, k, v, mask, is_causal=mask is None, enable_gqa=True)
        return self.wo(out.transpose(1, 2).flatten(2))

    def _heads(self, x: Tensor) -> Tensor:
        """(B, T, H * E) -> (B, H, T, E)."""
        return x.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)


class FeedForward(nn.Module):
    """SwiGLU (Shazeer, arXiv:2002.05202)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.w1 = nn.Linear(config.dim, config.ffn_dim, bias=False)
        self.w2 = nn.Linear(config.ffn_dim, config.dim, bias=False)
        self.w3 = nn.Linear(config.dim, config.ffn_dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    """Pre-norm decoder block."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(config.dim, eps=config.norm_eps)
        self.attention = Attention(config)
        self.ffn_norm = nn.RMSNorm(config.dim, eps=config.norm_eps)
        self.feed_forward = FeedForward(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> Tensor:
        """(B, T, D) -> (B, T, D)."""
        x = x + self.attention(self.attention_norm(x), cos, sin, mask)
        return x + self.feed_forward(self.ffn_norm(x))


class Llama3(nn.Module):
    """Token ids in, logits out."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.tok_embeddings = nn.Embedding(config.vocab_size, config.dim)
        self.layers = nn.ModuleDict({str(i): Block(config) for i in range(config.n_layers)})
        self.norm = nn.RMSNorm(config.dim, eps=config.norm_eps)
        self.output = None if config.tied_embeddings else nn.Linear(config.dim, config.vocab_size, bias=False)

    def forward(
        self, tokens: Tensor, positions: Tensor | None = None, document_ids: Tensor | None = None
    ) -> Tensor:
        """Logits of the next token.

        Args:
            tokens: (B, T) int64.
            positions: (B, T) int64, position of each token in its document; default 0 .. T-1.
            document_ids: (B, T) integers; a token sees earlier tokens with the same id only.
                Absent: all earlier tokens.

        Returns:
            (B, T, V) in the compute dtype.
        """
        if positions is None:
            positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
        cos, sin = rope_cos_sin(self.config, positions)
        mask = None if document_ids is None else document_causal_mask(document_ids)
        x = self.tok_embeddings(tokens)
        for block in self.layers.values():
            x = block(x, cos, sin, mask)
        x = self.norm(x)
        return F.linear(x, self.tok_embeddings.weight) if self.output is None else self.output(x)

    @torch.no_grad()
    def init_weights(self, seed: int) -> None:
        """Set every parameter from ``seed``; the same under any sharding.

        Matrices get a normal truncated at 3 sigma; those that write to the residual stream are
        narrowed by ``sqrt(2 * n_layers)`` (Radford et al., GPT-2, section 2.3); norms get ones.
        """
        narrow = self.config.init_std / (2 * self.config.n_layers) ** 0.5
        for name, parameter in self.named_parameters():
            if parameter.ndim == 1:
                nn.init.ones_(parameter)
            else:
                std = narrow if name.endswith(("wo.weight", "w2.weight")) else self.config.init_std
                counter_trunc_normal_(parameter, name, seed=seed, std=std)


def document_causal_mask(document_ids: Tensor) -> Tensor:
    """(B, T) ids -> (B, 1, T, T) bool, True where query t may look at key s <= t of its document."""
    same = document_ids[:, :, None] == document_ids[:, None, :]
    return same.tril().unsqueeze(1)
