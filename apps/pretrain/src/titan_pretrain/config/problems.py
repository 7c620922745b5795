"""One layer of a config checked against the sections: pydantic's findings in plain words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from titan_pretrain.config.fields import KeyPath, Option, find_option, show_value, with_none
from titan_pretrain.config.near_miss import closest, did_you_mean, known_keys, suggest_key
from titan_pretrain.config.sections import TrainConfig
from titan_pretrain.errors import UsageError

__all__ = ["Layer", "MistakeError", "check_layer", "translate"]


class MistakeError(UsageError):
    """One mistake of a config, with the place where the user made it."""

    def __init__(self, where: str, text: str, hint: str | None = None) -> None:
        super().__init__(_printable(f"{where}: {text}"), hint=_printable(hint) if hint else None)
        self.where = where


def _printable(text: str) -> str:
    """One line without control characters: names and values come from anywhere."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _nowhere(_path: KeyPath) -> str:
    return "config"


@dataclass(frozen=True)
class Layer:
    """Values from one source; later layers win over earlier ones.

    Attributes:
        data: nested dict as TOML gives it; may hold anything at all.
        locate: the place of a key, such as ``run.toml:7``.
    """

    data: Mapping[Any, Any]
    locate: Callable[[KeyPath], str] = field(default=_nowhere)


def check_layer(layer: Layer) -> tuple[dict[Any, Any], list[MistakeError], set[KeyPath]]:
    """Validate one layer by itself; every field has a default, so a part of a config is a config.

    Returns:
        The layer's data without its mistakes and with ``None`` for ``"none"``, the mistakes, and
        the paths of the options (or sections) that were taken out.
    """
    data = with_none(layer.data)
    problems: dict[KeyPath, MistakeError] = {}
    for _ in range(3):  # a field validator may find more once the first mistakes are gone
        try:
            TrainConfig.model_validate(data)
            break
        except ValidationError as error:
            for path, problem in translate(error, layer):
                problems.setdefault(path, problem)
                _remove(data, path)
    return data, list(problems.values()), set(problems)


def translate(error: ValidationError, layer: Layer) -> Iterator[tuple[KeyPath, MistakeError]]:
    """The path and the plain words of each of pydantic's findings."""
    for detail in error.errors(include_url=False, include_context=True):
        if detail["type"] == "extra_forbidden":
            yield _unknown_key(detail, layer)
        else:
            yield _bad_value(detail, layer)


def _unknown_key(detail: ErrorDetails, layer: Layer) -> tuple[KeyPath, MistakeError]:
    path = tuple(str(part) for part in detail["loc"])
    is_section = isinstance(detail["input"], Mapping)
    name = ".".join(path)
    text = f"unknown section [{name}]" if is_section else f"unknown key `{name}`"
    hint = did_you_mean(suggest_key(path, is_section=is_section)) or known_keys(path)
    return path, MistakeError(layer.locate(path), text, hint)


def _bad_value(detail: ErrorDetails, layer: Layer) -> tuple[KeyPath, MistakeError]:
    option = _nearest_option(detail["loc"])
    if option is None:
        text = f"a config must be a table, not {show_value(detail['input'])}"
        return (), MistakeError(layer.locate(()), text)
    value = detail["input"] if detail["loc"] == option.path else _get(layer.data, option.path)
    text = f"{option.name} ({show_value(value)}): {_rule(option, detail['type'])}"
    return option.path, MistakeError(layer.locate(option.path), text, _way_out(option, value))


def _rule(option: Option, kind: str) -> str:
    if kind == "less_than_equal" and "at most" not in option.rule:
        return "too large"
    return f"must be {option.rule}{' and finite' if kind == 'finite_number' else ''}"


def _nearest_option(loc: tuple[int | str, ...]) -> Option | None:
    """The option a finding belongs to: pydantic's path goes on inside lists."""
    for end in range(len(loc), 0, -1):
        option = find_option(tuple(str(part) for part in loc[:end]))
        if option is not None:
            return option
    return None


def _way_out(option: Option, value: object) -> str | None:
    """The nearest value that would have been right, when there is an obvious one."""
    if isinstance(value, str):
        return _from_text(option, value)
    if option.kind is str and isinstance(value, int | float) and not isinstance(value, bool):
        return f'write it in quotes: "{show_value(value)}"'
    if option.kind is int and isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return f"write {value:.0f}"
    return None


def _from_text(option: Option, value: str) -> str | None:
    if option.choices:
        near = closest(value, option.choices)
        return f'did you mean "{near}"?' if near else None
    if option.kind is bool and value.lower() in ("true", "false"):
        return f"write {value.lower()}, in small letters and without quotes"
    if option.kind in (int, float) and _is_number(value, option.kind):
        return f"write {option.kind(value)}, without quotes"
    return None


def _is_number(text: str, kind: type) -> bool:
    try:
        return len(text) < 30 and math.isfinite(kind(text))
    except ValueError:
        return False


def _get(data: Mapping[Any, Any], path: KeyPath) -> object:
    value: object = data
    for part in path:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _remove(data: dict[Any, Any], path: KeyPath) -> None:
    """Take the key at ``path`` out; sections on the way are dicts, or the finding were theirs."""
    *parents, last = path or (None,)
    node: Any = data
    for part in parents:
        node = node[part]
    if path:
        node.pop(last, None)
    else:
        node.clear()
