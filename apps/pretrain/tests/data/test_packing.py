"""The loader's tensors against a slow packer that knows nothing of it."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from titan_pretrain.data.documents import Document
from titan_pretrain.data.order import epoch_order
from titan_pretrain.data.packing import Cursor, ShardPacker
from titan_pretrain.data.source import ListSource
from titan_pretrain.errors import DataError

V = 48


def documents_of_shard(texts, shard, seed, shuffle):
    """Walk through all positions of all epochs and keep this shard's."""
    length = next(n for n in itertools.count(len(texts)) if math.gcd(n, V) == 1)
    position = 0
    for epoch in itertools.count():
        order = epoch_order(len(texts), None, seed=seed, epoch=epoch, shuffle=shuffle)
        for i in range(length):
            if position % V == shard and i < len(texts) and texts[order(i)].strip():
                yield texts[order(i)]
            position += 1


def pack(texts, tokenizer, seq_len, number, document_mask):
    """Token by token: ``number`` sequences of (tokens, labels, positions, document ids)."""
    flat, owner = [], []
    for instance, text in enumerate(texts):
        tokens = [
            *([tokenizer.bos_id] if tokenizer.bos_id is not None else []),
            *text.encode(),
            tokenizer.eos_id,
        ]
        flat += tokens
        owner += [instance] * len(tokens)
        if len(flat) > number * seq_len + seq_len:
            break
    sequences = []
    for start in range(0, number * seq_len, seq_len):
        labels, positions, ids, position, document = [], [], [], -1, 0
        for i in range(start, start + seq_len):
            new = i > start and owner[i] != owner[i - 1] and document_mask
            position = 0 if new else position + 1
            document += new
            crosses = document_mask and owner[i + 1] != owner[i]
            labels.append(-100 if crosses else flat[i + 1])
            positions.append(position)
            ids.append(document)
        sequences.append((flat[start : start + seq_len], labels, positions, ids))
    return sequences


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("document_mask", [True, False])
@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize("seq_len", [1, 2, 7, 64])
def test_batches_equal_the_slow_packer(
    seq_len, bos, document_mask, shuffle, make_texts, make_loader, tokenizer, tokenizer_without_bos
):
    texts = make_texts(40)
    tokenizer = tokenizer if bos else tokenizer_without_bos
    loader = make_loader(
        ListSource("list", texts),
        tokenizer=tokenizer,
        seq_len=seq_len,
        micro_batch_size=V,
        document_mask=document_mask,
        shuffle=shuffle,
    )
    batches = [next(loader) for _ in range(6)]  # batch i holds sequence i of each shard
    for shard in range(V):
        documents = documents_of_shard(texts, shard, seed=3, shuffle=shuffle)
        expected = pack(documents, tokenizer, seq_len, 6, document_mask)
        for batch, (tokens, labels, positions, ids) in zip(batches, expected, strict=True):
            assert batch.tokens[shard].tolist() == tokens
            assert batch.labels[shard].tolist() == labels
            assert batch.positions[shard].tolist() == positions
            assert batch.document_ids[shard].tolist() == ids
    for batch in batches:
        assert batch.num_valid == int((batch.labels != -100).sum())


def test_shapes_and_types(list_source, make_loader):
    batch = next(make_loader(list_source(50), micro_batch_size=3, seq_len=16))
    assert batch.tokens.shape == batch.labels.shape == batch.positions.shape == (3, 16)
    assert batch.document_ids.shape == (3, 16)
    assert batch.tokens.dtype == batch.labels.dtype == batch.positions.dtype == torch.int64
    assert batch.document_ids.dtype == torch.int32
    assert all(tensor.is_contiguous() for tensor in (batch.tokens, batch.labels, batch.positions))
    assert len(set(batch.hashes)) == 3


def test_hashes_tell_sequences_apart(list_source, make_loader):
    loader = make_loader(list_source(50), document_mask=False)
    by_hash = {}
    for _ in range(200):
        batch = next(loader)
        for name, tokens, labels in zip(batch.hashes, batch.tokens, batch.labels, strict=True):
            content = (*tokens.tolist(), int(labels[-1]))
            assert by_hash.setdefault(name, content) == content
    assert len(by_hash) == len(set(by_hash.values())) > 100


class Fixed:
    """Every document is the same text."""

    def __init__(self, text="ab"):
        self.text = text

    def fetch(self, shard, ordinal):
        return Document(ordinal, self.text)


def test_cursor_points_at_the_last_label(tokenizer):
    packer = ShardPacker(Fixed(), tokenizer, 6, 0, Cursor())  # a document is BOS a b EOS
    cursors = [next(packer).cursor for _ in range(4)]
    assert [(c.ordinal, c.offset) for c in cursors] == [(1, 2), (3, 0), (4, 2), (6, 0)]


def test_cursor_survives_json():
    cursor = Cursor(3, 7, {"epoch": 1})
    assert Cursor.from_json(cursor.to_json()) == cursor
    assert Cursor.from_json(Cursor().to_json()) == Cursor()


def test_tokenizer_without_tokens_is_an_error(tokenizer, monkeypatch):
    monkeypatch.setattr("titan_pretrain.data.packing._MAX_WITHOUT_TOKENS", 50)
    monkeypatch.setattr(type(tokenizer), "encode", lambda self, text: [])
    with pytest.raises(DataError, match="no tokens for 50 documents in a row"):
        next(ShardPacker(Fixed(), tokenizer, 6, 0, Cursor()))
