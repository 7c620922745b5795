"""Tokenizers: loading, training, saving."""

from titan_pretrain.tokenizer.base import Tokenizer
from titan_pretrain.tokenizer.bpe import train_bpe
from titan_pretrain.tokenizer.load import load_tokenizer
from titan_pretrain.tokenizer.run import tokenizer_for_run

__all__ = ["Tokenizer", "load_tokenizer", "tokenizer_for_run", "train_bpe"]
