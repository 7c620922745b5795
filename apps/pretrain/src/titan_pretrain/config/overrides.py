"""``--set section.key=value`` on the command line."""

from __future__ import annotations

from typing import Any, get_origin

from titan_pretrain.config.fields import KeyPath, Option, find_option
from titan_pretrain.config.problems import Layer, MistakeError
from titan_pretrain.config.toml_file import parse_value

__all__ = ["parse_override"]


def parse_override(text: str) -> Layer:
    """One ``section.key=value`` as a layer.

    The value is TOML; a text needs no quotes.

    Raises:
        MistakeError: no ``=``, an empty key, or a list or table that isn't valid TOML.
    """
    where = f"--set {text}"
    key, equals, value = text.partition("=")
    path = tuple(part.strip() for part in key.split("."))
    if not equals or not all(path):
        raise MistakeError(where, "must look like section.key=value, such as optim.lr=1e-3")
    if path[0] == "preset":
        raise MistakeError(where, "a preset is chosen by --config", f"write --config {value.strip()}")
    if not _is_utf8(text):
        raise MistakeError(where, "is not UTF-8 text")
    return Layer(_nest(path, _read_value(where, find_option(path), value.strip())), lambda _path: where)


def _nest(path: KeyPath, value: Any) -> dict[str, Any]:
    for part in reversed(path):
        value = {part: value}
    return value  # type: ignore[no-any-return]


def _is_utf8(text: str) -> bool:
    """False for bytes of another encoding, which Python smuggles into argv as surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_value(where: str, option: Option | None, text: str) -> Any:
    try:
        value = parse_value(text)
    except ValueError as error:
        if text[:1] in ("[", "{", '"', "'"):
            hint = 'quote texts in lists: ["a", "b"]' if text.startswith("[") else None
            raise MistakeError(where, f"not a valid TOML value: {error}", hint) from None
        return text
    return text if option is not None and _wants_text(option, value) else value


def _wants_text(option: Option, value: Any) -> bool:
    """``run.name=123`` and ``run.name=2024-01-01`` mean texts, whatever TOML calls them."""
    takes_text = option.kind is str or get_origin(option.kind) is tuple
    return takes_text and not isinstance(value, str | list | dict)
