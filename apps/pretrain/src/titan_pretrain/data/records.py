"""From a record (a JSON object, a row, an item of the user's iterable) to its text."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from titan_pretrain.errors import DataError

__all__ = ["missing_key", "parse_json", "text_of"]


def parse_json(line: str, key: str, where: str) -> str:
    """Return the text of one line of a jsonl file; "" for a blank line.

    Args:
        line: The line.
        key: ``data.text_key``.
        where: ``file:line``, for messages.

    Raises:
        DataError: The line isn't JSON, or has no text under ``key``.
    """
    if not line or line.isspace():
        return ""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = getattr(error, "msg", str(error))
        raise DataError(f"{where} isn't JSON ({reason}); each line must be one JSON object") from None
    return text_of(record, key, where)


def text_of(record: Any, key: str, where: str) -> str:
    """Return the text of a record: itself if it is a string, its field ``key``, "" for a null.

    Raises:
        DataError: There is no such field, or it isn't text.
    """
    if isinstance(record, str):
        return _repaired(record)
    if not isinstance(record, Mapping):
        raise DataError(f"{where} is {_type_name(record)}, not a text or an object with a text in {key!r}")
    if key not in record:
        raise missing_key(key, record, where)
    text = record[key]
    if text is None:
        return ""
    if not isinstance(text, str):
        raise DataError(f"{where}: data.text_key ({key}) holds {_type_name(text)}, not text")
    return _repaired(text)


def _repaired(text: str) -> str:
    r"""Replace lone surrogates: JSON can spell them (``"\ud800"``), UTF-8 and tokenizers can't."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def missing_key(key: str, known: Iterable[Any], where: str) -> DataError:
    """Return the error for a record without ``key``; names the nearest or all known keys."""
    names = [str(name) for name in known]
    near = get_close_matches(key, names, n=1)
    way_out = f"did you mean {near[0]!r}?" if near else f"it has {', '.join(names[:12]) or 'no fields'}"
    return DataError(f"{where} has no field data.text_key ({key}); {way_out}")


def _type_name(value: object) -> str:
    return f"a value of type {type(value).__name__}"
