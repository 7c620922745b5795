"""Training of a byte-level BPE (Sennrich et al., arXiv:1508.07909), cut as Llama 3 cuts text."""

from __future__ import annotations

from collections.abc import Iterable

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from titan_pretrain.errors import DataError
from titan_pretrain.tokenizer.fast import FastTokenizer

__all__ = ["BOS", "EOS", "LLAMA3_PATTERN", "PAD", "add_bos_template", "byte_level_bpe", "train_bpe"]

BOS, EOS, PAD = "<|begin_of_text|>", "<|end_of_text|>", "<|pad|>"

# Published with Llama 3: words with one leading character, numbers of up to three digits,
# punctuation with trailing line ends, line ends, spaces.
LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def byte_level_bpe(model: models.BPE) -> Tokenizer:
    """Wrap a BPE model of byte tokens with Llama 3's pre-tokenizer and decoder."""
    backend = Tokenizer(model)
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LLAMA3_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    backend.decoder = decoders.ByteLevel()
    return backend


def add_bos_template(backend: Tokenizer, bos: str) -> None:
    """Let the library's own ``encode`` put ``bos`` first, as Llama's does."""
    backend.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A",
        pair=f"{bos} $A {bos} $B",
        special_tokens=[(bos, backend.token_to_id(bos))],
    )


def train_bpe(texts: Iterable[str], vocab_size: int) -> FastTokenizer:
    """Train a tokenizer; the same texts give the same tokenizer.

    Args:
        texts: Documents.
        vocab_size: Number of ids with the 256 bytes and three special tokens; fewer if the texts
            have too few repeated pairs.

    Raises:
        DataError: There is no text.
    """
    backend = byte_level_bpe(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[BOS, EOS, PAD],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(iter(texts), trainer=trainer)
    if backend.get_vocab_size() <= len(pre_tokenizers.ByteLevel.alphabet()) + 3:
        raise DataError(
            "a tokenizer can't be trained: the documents have too little text",
            hint="give more text, or name a tokenizer by tokenizer.path",
        )
    add_bos_template(backend, BOS)
    # The trainer numbers the special tokens first, in the order given.
    return FastTokenizer(backend, bos_id=0, eos_id=1, config={"pad_token": PAD})
