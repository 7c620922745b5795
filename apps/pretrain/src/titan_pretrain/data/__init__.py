"""Data: sources of documents, and the loader that makes micro-batches of them."""

from titan_pretrain.data.batch import Batch
from titan_pretrain.data.build import build_source
from titan_pretrain.data.loader import TokenLoader
from titan_pretrain.data.source import DocumentSource, IndexedSource, PartReader, StreamSource
from titan_pretrain.data.state import merge_states

__all__ = [
    "Batch",
    "DocumentSource",
    "IndexedSource",
    "PartReader",
    "StreamSource",
    "TokenLoader",
    "build_source",
    "merge_states",
]
