"""Llama 3 (Grattafiori et al., "The Llama 3 Herd of Models", arXiv:2407.21783)."""

from titan_pretrain.models.llama3.model import Llama3

__all__ = ["Llama3"]
