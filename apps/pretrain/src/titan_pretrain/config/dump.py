"""A config as text: TOML that loads to the same config, differences, and the list of options."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from titan_pretrain.config.fields import NONE, KeyPath, Option, find_option, options
from titan_pretrain.config.sections import TrainConfig

__all__ = ["difference", "flatten", "options_table", "to_toml"]

DOCS_WIDTH = 96


def to_toml(config: TrainConfig, *, docs: bool = False) -> str:
    """Every option of ``config`` as TOML.

    Args:
        config: the config.
        docs: write each option's documentation above it as a comment.
    """
    blocks = _section_blocks(config, (), docs)
    return "\n\n".join(blocks) + "\n"


def flatten(config: BaseModel, prefix: KeyPath = ()) -> dict[str, Any]:
    """``{"optim.lr": 0.002, ...}``; an absent section is None under its own name."""
    flat: dict[str, Any] = {}
    for name in type(config).model_fields:
        value = getattr(config, name)
        path = (*prefix, name)
        flat |= flatten(value, path) if isinstance(value, BaseModel) else {".".join(path): value}
    return flat


def difference(old: TrainConfig, new: TrainConfig) -> dict[str, tuple[Any, Any]]:
    """Options whose values differ, with both values; a missing option's value is None."""
    a, b = flatten(old), flatten(new)
    names = [*a, *(name for name in b if name not in a)]
    return {name: (a.get(name), b.get(name)) for name in names if a.get(name) != b.get(name)}


def toml_value(value: Any) -> str:
    """One value in TOML's spelling; ``None`` is ``"none"``."""
    if value is None:
        value = NONE
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, Sequence):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    return repr(value)


def options_table() -> Iterator[tuple[Option, str]]:
    """Every plain option with its default in TOML's spelling."""
    for option in options().values():
        if option.section is None:
            yield option, toml_value(option.default)


def _section_blocks(section: BaseModel, path: KeyPath, docs: bool) -> Iterator[str]:
    plain, nested = [], []
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            nested.append((name, value))
        else:
            plain += [*_comment((*path, name), docs), f"{name} = {toml_value(value)}"]
    if plain:
        yield "\n".join([*_comment(path, docs), f"[{'.'.join(path)}]", *plain])
    for name, value in nested:
        yield from _section_blocks(value, (*path, name), docs)


def _comment(path: KeyPath, docs: bool) -> list[str]:
    option = find_option(path)
    if not docs or option is None:
        return []
    text = option.docs or (option.section.__doc__ if option.section else "") or ""
    if option.section is None:
        text = f"{text}  ({option.rule})"
    return [f"# {line}" for line in _wrap(text)]


def _wrap(text: str) -> list[str]:
    import textwrap

    return textwrap.wrap(" ".join(text.split()), DOCS_WIDTH)


def to_json(config: TrainConfig, sources: Mapping[str, str]) -> str:
    """``config show --json``: the config and where each set option comes from."""
    document = {"schema_version": 1, "config": config.model_dump(mode="json"), "sources": dict(sources)}
    return json.dumps(document, indent=2)
