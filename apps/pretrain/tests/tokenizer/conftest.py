"""Text in many scripts, and small tokenizers in each file format, made on the fly."""

from __future__ import annotations

import base64
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from tokenizers import pre_tokenizers

from titan_pretrain.data.stdlib import stdlib_source
from titan_pretrain.tokenizer import Tokenizer, train_bpe

POOLS = (
    "abAB01 .,\n\t'\r",
    "αβγжяא中文日本語한국어🙂👩‍👩‍👧 ½ﬁ\u00a0\u3000\u200b",
    " \n",
    "aab b",
    "=-_*#/",
    "0123456789",
)


@pytest.fixture(scope="session")
def corpus() -> list[str]:
    """Some of the standard library."""
    return [text for text, _ in zip(stdlib_source().sample(), range(40), strict=False)]


@pytest.fixture(scope="session")
def texts(corpus: list[str]) -> list[str]:
    """Real code, random mixtures of scripts and spaces, any Unicode, and special tokens as text."""
    rng = random.Random(0)
    mixed = ["".join(rng.choice(rng.choice(POOLS)) for _ in range(rng.randint(1, 60))) for _ in range(600)]
    runs = [rng.choice(POOLS)[0] * rng.randint(2, 200) + rng.choice(mixed) for _ in range(200)]
    code_points = [*range(32, 0x300), *range(0x300, 0xD800, 97), *range(0xE000, 0x1FFFF, 131)]
    anything = ["".join(map(chr, rng.choices(code_points, k=30))) for _ in range(200)]
    special = ["<|end_of_text|>", "a<|begin_of_text|>b", "</s><s>", "<unk>", "<|eot_id|>", "", " ", "\n"]
    return [*mixed, *runs, *anything, *special, *(text[:20_000] for text in corpus[:12])]


@pytest.fixture(scope="session")
def bpe(corpus: list[str]) -> Tokenizer:
    return train_bpe(corpus, 2000)


@pytest.fixture(scope="session")
def tiktoken_file(bpe: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The trained BPE's merges as a tiktoken file."""
    letters = _bytes_of_letters()
    tokens = [name for name, _ in sorted(bpe.vocabulary().items(), key=lambda item: item[1])][3:]
    file = tmp_path_factory.mktemp("tiktoken") / "tokenizer.model"
    lines = (
        base64.b64encode(bytes(letters[letter] for letter in token)).decode() + f" {rank}\n"
        for rank, token in enumerate(tokens)
    )
    file.write_text("".join(lines))
    return file


def _bytes_of_letters() -> dict[str, int]:
    """The letter of each byte, asked from the library: its spelling of single bytes."""
    step = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    letters = {}
    for code in [*range(0x80), *range(0x80, 0x800)]:
        spelled = step.pre_tokenize_str(chr(code))[0][0]
        letters.update(zip(spelled, chr(code).encode(), strict=True))
    for code in (*range(0x800, 0xD800, 64), *range(0xE000, 0x110000, 4096)):
        spelled = step.pre_tokenize_str(chr(code))[0][0]
        letters.update(zip(spelled, chr(code).encode(), strict=True))
    # Bytes that no UTF-8 text holds take the letters that are left, in order.
    missing = [byte for byte in range(256) if byte not in letters.values()]
    free = sorted(set(pre_tokenizers.ByteLevel.alphabet()) - letters.keys())
    return letters | dict(zip(free, missing, strict=True))


@pytest.fixture(scope="session")
def sentencepiece_file(corpus: list[str], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """Train a sentencepiece model; default as Llama 2's."""
    library = pytest.importorskip("sentencepiece")
    folder = tmp_path_factory.mktemp("sentencepiece")
    lines = [line[:1000] for text in corpus for line in text.splitlines()][:8000]

    def train(name: str = "llama", **options: object) -> Path:
        file = folder / f"{name}.model"
        if not file.exists():
            defaults = {
                "model_type": "bpe",
                "vocab_size": 1500,
                "byte_fallback": True,
                "normalization_rule_name": "identity",
                "remove_extra_whitespaces": False,
                "add_dummy_prefix": True,
                "split_digits": True,
                "allow_whitespace_only_pieces": True,
                "minloglevel": 2,
                "num_threads": 1,
            }
            with file.open("wb") as writer:
                library.SentencePieceTrainer.train(
                    sentence_iterator=iter(lines), model_writer=writer, **(defaults | options)
                )
        return file

    return train
