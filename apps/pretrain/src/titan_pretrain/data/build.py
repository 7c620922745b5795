"""From the ``data`` section of a config to a source."""

from __future__ import annotations

from collections.abc import Callable

from titan_pretrain.config.sections import DataConfig
from titan_pretrain.data.source import DocumentSource
from titan_pretrain.data.stdlib import stdlib_source
from titan_pretrain.data.text import TextSource
from titan_pretrain.errors import UsageError

__all__ = ["build_source"]

_BUILDERS: dict[str, Callable[[DataConfig], DocumentSource]] = {
    "python-stdlib": lambda config: stdlib_source(),
    "text": lambda config: TextSource(config.path),
}


def build_source(config: DataConfig, *, seed: int) -> DocumentSource:
    """Open a dataset and check what can be checked quickly.

    Args:
        config: The ``data`` section.
        seed: Seed of the run; passed to functions of the user that take one.

    Raises:
        UsageError: The section asks for something that doesn't exist.
        DataError: The dataset is empty or damaged.
    """
    return _BUILDERS[config.dataset](config)
