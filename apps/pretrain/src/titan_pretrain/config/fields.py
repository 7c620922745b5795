"""The options of a config, read off the section models: names, rules in words, defaults, docs."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, time
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from titan_pretrain.config.sections import LARGEST_INT, TrainConfig, Words

__all__ = ["NONE", "KeyPath", "Option", "find_option", "get_value", "options", "show_value", "with_none"]

NONE = "none"
"""How TOML and the command line write Python's ``None``."""

KeyPath = tuple[str, ...]


@dataclass(frozen=True)
class Option:
    """One field of a section, or a section.

    Attributes:
        path: names from the root, such as ``("optim", "lr")``.
        kind: the Python type without ``None``, bounds and words, such as ``float``.
        bounds: metadata with ``ge``, ``gt``, ``le`` or ``lt``, and :class:`Words`.
        optional: whether ``"none"`` is allowed.
        default: the value when nobody sets it.
        docs: the field's docstring.
    """

    path: KeyPath
    kind: Any
    bounds: tuple[Any, ...]
    optional: bool
    default: Any
    docs: str

    @property
    def name(self) -> str:
        """The dotted name, such as ``optim.lr``."""
        return ".".join(self.path)

    @property
    def section(self) -> type[BaseModel] | None:
        """The model of a section; None for a plain option."""
        is_model = isinstance(self.kind, type) and issubclass(self.kind, BaseModel)
        return self.kind if is_model else None

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed values of a ``Literal``; empty for other types."""
        return get_args(self.kind) if get_origin(self.kind) is Literal else ()

    @property
    def rule(self) -> str:
        """What to type, in words: ``a whole number, at least 1``."""
        words = next((item for item in self.bounds if isinstance(item, Words)), None)
        text = str(words) if words else self._type_in_words()
        return f'{text}, or "{NONE}"' if self.optional else text

    def _type_in_words(self) -> str:
        if self.section is not None:
            return f"a section with keys such as `{self.name}.{next(iter(self.section.model_fields))}`"
        if self.choices:
            quoted = [f'"{choice}"' for choice in self.choices]
            return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
        base = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}[self.kind]
        limits = " and ".join(self._limits())
        comma = "" if limits.startswith("above") or not limits else ","
        return f"{base}{comma} {limits}".rstrip()

    def _limits(self) -> Iterator[str]:
        words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
        for item in self.bounds:
            for attribute, word in words.items():
                bound = getattr(item, attribute, None)
                if bound is not None and bound != LARGEST_INT:
                    yield f"{word} {bound:g}"


def find_option(path: KeyPath) -> Option | None:
    """The option or section at ``path``, or None when there is no such key."""
    return options().get(path)


@cache
def options() -> Mapping[KeyPath, Option]:
    """Every section and option by its path, in the order of the sections' source."""
    return {option.path: option for option in _walk(TrainConfig, ())}


def _walk(model: type[BaseModel], prefix: KeyPath) -> Iterator[Option]:
    for name, info in model.model_fields.items():
        option = _read_field((*prefix, name), info)
        yield option
        if option.section is not None:
            yield from _walk(option.section, option.path)


def _read_field(path: KeyPath, info: FieldInfo) -> Option:
    kind, bounds, optional = _unwrap(info.annotation, tuple(info.metadata))
    docs = " ".join((info.description or "").split())
    return Option(path, kind, bounds, optional, info.get_default(call_default_factory=True), docs)


def _unwrap(kind: Any, bounds: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...], bool]:
    """Strip ``| None`` and ``Annotated``, collecting the metadata."""
    optional = False
    if get_origin(kind) in (Union, types.UnionType):
        kind = next(arg for arg in get_args(kind) if arg is not type(None))
        optional = True
    if get_origin(kind) is Annotated:
        kind, *metadata = get_args(kind)
        for item in metadata:
            bounds += tuple(item.metadata) if isinstance(item, FieldInfo) else (item,)
    return kind, bounds, optional


def with_none(data: Mapping[Any, Any], prefix: KeyPath = ()) -> dict[Any, Any]:
    """A copy of ``data`` in which ``"none"`` is ``None`` wherever the option allows it."""
    result = dict(data)
    for key, value in data.items():
        option = find_option((*prefix, key)) if isinstance(key, str) else None
        if option is None:
            continue
        if option.optional and isinstance(value, str) and value == NONE:
            result[key] = None
        elif option.section is not None and isinstance(value, Mapping):
            result[key] = with_none(value, option.path)
    return result


def get_value(config: BaseModel, name: str) -> Any:
    """The value of the dotted ``name``; None when a section on the way is absent."""
    value: Any = config
    for part in name.split("."):
        if value is None:
            return None
        value = getattr(value, part)
    return value


def show_value(value: object, limit: int = 60) -> str:
    """``value`` as a user would type it in TOML, shortened to ``limit`` characters."""
    if value is None:
        text = f'"{NONE}"'
    elif isinstance(value, bool):
        text = str(value).lower()
    elif isinstance(value, str):
        text = f'"{value}"'
    elif isinstance(value, list | tuple):
        items = ["[...]" if isinstance(item, list | tuple) else show_value(item, limit) for item in value[:8]]
        text = f"[{', '.join(items)}{', ...' if value[8:] else ''}]"
    else:
        text = _safe_repr(value)
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _safe_repr(value: object) -> str:
    """``repr`` for anything: a number of a million digits and a broken ``__repr__`` included."""
    if isinstance(value, date | time):
        return value.isoformat()
    try:
        return repr(value)
    except Exception:  # a user's object may raise whatever it likes
        return f"<{type(value).__name__}>"
