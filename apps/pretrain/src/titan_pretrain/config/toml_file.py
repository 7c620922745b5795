"""TOML files: read with errors that name the line, and the line of each key."""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

from titan_pretrain.config.fields import KeyPath
from titan_pretrain.config.near_miss import closest
from titan_pretrain.config.problems import Layer, MistakeError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # type: ignore[import-not-found,unused-ignore]

__all__ = ["line_of", "parse_value", "read_toml"]


def read_toml(path: Path, shown: str | None = None) -> Layer:
    """The values of a TOML file, each with its line.

    Args:
        path: the file.
        shown: how messages name it; default the path itself.

    Raises:
        MistakeError: the file can't be read, isn't UTF-8 or isn't TOML.
    """
    shown = shown or str(path)
    text = _decode(_read_bytes(path, shown), shown)
    return Layer(_parse(text, shown), partial(_locate, _Text(text), shown))


def parse_value(text: str) -> Any:
    """One TOML value.

    Raises:
        ValueError: ``text`` is not exactly one value.
    """
    try:
        document = tomllib.loads(f"value = {text}")
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    if list(document) != ["value"]:
        raise ValueError("more than one value")
    return document["value"]


def _read_bytes(path: Path, shown: str) -> bytes:
    if path.is_dir():
        inside = path / "config.toml"
        hint = f"use {inside}" if inside.is_file() else "give a TOML file or the name of a preset"
        raise MistakeError(shown, "is a folder, not a config file", hint)
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise MistakeError(shown, "no such file", _neighbours(path)) from None
    except OSError as error:
        raise MistakeError(shown, f"can't be read: {error.strerror or error}") from None
    except ValueError:  # a NUL in the name
        raise MistakeError(shown, "is not a file name") from None


def _neighbours(path: Path) -> str:
    near = closest(path.name, sorted(other.name for other in path.parent.glob("*.toml")))
    return f"did you mean {path.with_name(near)}?" if near else "`titan-pretrain presets` lists the presets"


def _decode(data: bytes, shown: str) -> str:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise MistakeError(f"{shown}:1", "is UTF-16 text; a config must be UTF-8", "save the file as UTF-8")
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        byte = error.object[error.start]
        text = f"byte 0x{byte:02x} is not UTF-8 text"
        raise MistakeError(f"{shown}:{line}", text, "save the file as UTF-8") from None


def _parse(text: str, shown: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = tomllib.loads(text)
        return document
    except RecursionError:
        raise MistakeError(shown, "values are nested too deep") from None
    except ValueError as error:  # TOMLDecodeError, and int() of a number with thousands of digits
        line, what = _syntax_error(str(error), text)
        raise MistakeError(f"{shown}:{line}", f"not valid TOML: {what}", _syntax_hint(text, line)) from None


def _syntax_error(message: str, text: str) -> tuple[int, str]:
    """Line and rest of ``Invalid value (at line 3, column 7)``."""
    place = re.search(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)", message)
    what = message[: place.start()] if place else message
    what = what[:1].lower() + what[1:]
    if place and place[1]:
        return int(place[1]), f"{what} (column {place[2]})"
    return max(1, len(text.rstrip().split("\n"))), what


def _syntax_hint(text: str, line: int) -> str | None:
    """The usual slip: a text without quotes, or Python's and YAML's words."""
    lines = text.split("\n")
    found = re.match(r"\s*([\w.-]+)\s*=\s*([^\s\"'\[{#][^#]*?)\s*(#.*)?$", lines[line - 1])
    if found is None:
        is_yaml = re.match(r"\s*[\w.-]+\s*:(\s|$)", lines[line - 1])
        return 'TOML writes `key = value`, and sections as "[section]"' if is_yaml else None
    key, value = found[1], found[2]
    if value.lower() in ("true", "false"):
        return f"write `{key} = {value.lower()}`"
    if value.lower() in ("none", "null"):
        return f'write `{key} = "none"`'
    return f'texts need quotes: `{key} = "{value}"`' if re.match(r"[A-Za-z/~._]", value) else None


def _locate(text: _Text, shown: str, path: KeyPath) -> str:
    line = text.line_of(path)
    return f"{shown}:{line}" if line else shown


class _Text:
    """Finds the line of a key: the end of the shortest part of the text that holds the key.

    Parts are parsed by tomllib, so that the grammar of TOML is its alone; bisection keeps them few,
    and they are remembered for the next key.
    """

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.parsed: dict[int, dict[str, Any] | None] = {}

    def line_of(self, path: KeyPath) -> int | None:
        """First line (from 1) of the statement that brings ``path`` or its nearest parent."""
        while path:
            if self._holds(len(self.lines), path):
                return self._first_line(path)
            path = path[:-1]
        return None

    def _first_line(self, path: KeyPath) -> int:
        low, high = 1, len(self.lines)
        while low < high:
            middle = (low + high) // 2
            low, high = (low, middle) if self._holds(middle, path) else (middle + 1, high)
        return low

    def _holds(self, count: int, path: KeyPath) -> bool:
        """Whether the first ``count`` lines, and the rest of a statement they break off in, set ``path``."""
        parts = map(self._parse, range(count, len(self.lines) + 1))
        node: object = next((part for part in parts if part is not None), None)
        for key in path:
            if not isinstance(node, dict) or key not in node:
                return False
            node = node[key]
        return True

    def _parse(self, count: int) -> dict[str, Any] | None:
        """The first ``count`` lines; None when they end inside a statement."""
        if count not in self.parsed:
            try:
                self.parsed[count] = tomllib.loads("\n".join(self.lines[:count]))
            except ValueError:
                self.parsed[count] = None
        return self.parsed[count]


def line_of(text: str, path: KeyPath) -> int | None:
    """First line (from 1) of the statement that brings ``path`` or its nearest parent; None for none."""
    return _Text(text).line_of(path)
