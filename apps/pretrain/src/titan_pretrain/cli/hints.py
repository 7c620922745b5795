"""What a wrong command line probably meant: a misspelled option, or an option of the config without --set."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from itertools import pairwise

import click

__all__ = ["option_hint", "setting_hint"]

VALUE = "VALUE"
SETTING = re.compile(r"[A-Za-z_]\w*(\.\w+)+=.*", re.DOTALL)


def option_hint(error: click.NoSuchOption, arguments: Sequence[str]) -> str:
    """The way out for an unknown option: the nearest one, be it the program's or the config's.

    Args:
        error: what click says.
        arguments: the command line, for the value that the user gave.
    """
    command = error.ctx.command if error.ctx else None
    own = {_word(name): name for param in (command.params if command else ()) for name in param.opts}
    word = _word(error.option_name)
    if "set" in own and _is_section(word):
        return f"its options are set by --set {word}.KEY=VALUE; `titan-pretrain config schema` lists them"
    keys = _config_keys(word, own) if "set" in own else []
    if keys:
        value = shlex.quote(_value_of(error.option_name, arguments))
        return _did_you_mean([f"--set {key}={value}" for key in keys])
    near = get_close_matches(word, own, n=1)
    return _did_you_mean([own[near[0]]]) if near else ""


def setting_hint(message: str, arguments: Sequence[str]) -> str:
    """The way out for a misplaced ``section.key=value``, or ``--set section.key value``; empty for others.

    Args:
        message: click's, which names the word it can't place.
        arguments: the command line.
    """
    for before, word in pairwise(["", *arguments]):
        if before != "--set" and word in message and SETTING.fullmatch(word):
            return _did_you_mean([f"--set {shlex.quote(word)}"])
    for option, key, value in zip(arguments, arguments[1:], arguments[2:], strict=False):
        if option == "--set" and "=" not in key and value in message:
            return _did_you_mean([f"--set {key}={VALUE if value == '=' else shlex.quote(value)}"])
    return ""


def _did_you_mean(texts: Sequence[str]) -> str:
    return f"did you mean {' or '.join(f'`{text}`' for text in texts)}?"


def _word(option: str) -> str:
    return option.lstrip("-").replace("-", "_")


def _config_keys(word: str, own: Collection[str]) -> list[str]:
    """Options of the config that ``word`` may mean, unless an option of the program is nearer."""
    from titan_pretrain.config.fields import options
    from titan_pretrain.config.near_miss import SYNONYMS, closest, suggest_key

    plain = {option.name: path[-1] for path, option in options().items() if option.section is None}
    if word in plain:
        return [word]
    if "." in word or word in SYNONYMS:
        return [key for key in suggest_key(tuple(word.split("."))) if key in plain]
    nearest = closest(word, [*own, *plain.values()])
    return [key for key, last in plain.items() if last == nearest and last not in own][:3]


def _is_section(word: str) -> bool:
    from titan_pretrain.config.fields import find_option

    option = find_option(tuple(word.split(".")))
    return option is not None and option.section is not None


def _value_of(option: str, arguments: Sequence[str]) -> str:
    """What follows ``option`` on the command line."""
    for argument, following in pairwise([*arguments, "--"]):
        name, equals, value = argument.partition("=")
        if _word(name) == _word(option):
            return value if equals else VALUE if following.startswith("--") else following
    return VALUE
