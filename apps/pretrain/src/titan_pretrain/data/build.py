"""From the ``data`` section of a config to a source."""

from __future__ import annotations

from difflib import get_close_matches

from titan_pretrain.config.sections import DataConfig
from titan_pretrain.data.hub import c4_source, hub_source
from titan_pretrain.data.jsonl import jsonl_source
from titan_pretrain.data.parquet import ParquetSource
from titan_pretrain.data.source import DocumentSource
from titan_pretrain.data.stdlib import stdlib_source
from titan_pretrain.data.text import TextSource
from titan_pretrain.data.user import user_source
from titan_pretrain.errors import UsageError

__all__ = ["DATASETS", "build_source"]

DATASETS = ("python-stdlib", "text", "jsonl", "parquet", "hf", "c4")
"""Names of ``data.dataset`` besides ``module:function``."""


def build_source(config: DataConfig, *, seed: int) -> DocumentSource:
    """Open a dataset and check what can be checked quickly.

    Nothing is fetched unless ``data.dataset`` is ``hf`` with the name of a hub dataset, or ``c4``
    without a folder.

    Args:
        config: The ``data`` section.
        seed: Seed of the run; passed to a function of the user that takes one.

    Raises:
        UsageError: The section asks for something that doesn't exist.
        DataError: The dataset is empty or damaged.
    """
    match config.dataset:
        case "python-stdlib":
            return stdlib_source()
        case "text":
            return TextSource(config.path)
        case "jsonl":
            return jsonl_source("jsonl", config.path, config.text_key)
        case "parquet":
            return ParquetSource(config.path, config.text_key)
        case "hf":
            return hub_source(config)
        case "c4":
            return c4_source(config)
        case spec if ":" in spec:
            return user_source(spec, config.text_key, seed)
    near = get_close_matches(config.dataset, DATASETS, n=1)
    way_out = f"did you mean {near[0]!r}?" if near else f"use {', '.join(DATASETS)} or module:function"
    raise UsageError(f"data.dataset ({config.dataset}) is unknown; {way_out}")
