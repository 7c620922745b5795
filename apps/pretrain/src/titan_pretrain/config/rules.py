"""The rules that involve several options, each a small function in a registry.

A rule says what it reads, so that a mistake in one of these options isn't reported twice, and it
returns what is wrong: the option and its value, the rule, and the way out with the nearest legal
value.  The rules themselves stand in :mod:`.rules_model`, :mod:`.rules_data` and
:mod:`.rules_parallel`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import chain

from titan_pretrain.config.fields import get_value, show_value
from titan_pretrain.config.sections import Section, TrainConfig

__all__ = ["Finding", "World", "broken", "check", "nearest", "rule", "start_rule"]

SEARCH_STEPS = 4096
"""How far from the user's value a legal one is looked for."""


@dataclass(frozen=True)
class World:
    """The processes of a run that is about to start.

    Attributes:
        size: number of processes.
        origin: where the number comes from, such as ``--nproc 3``.
    """

    size: int
    origin: str


@dataclass(frozen=True)
class Finding:
    """A broken rule.

    Attributes:
        option: the option to change.
        text: option, value, rule and way out.
        reads: the options that take part.
        origin: place to name when none of them was set by the user.
    """

    option: str
    text: str
    hint: str | None = None
    reads: tuple[str, ...] = ()
    origin: str | None = None


Findings = Iterator[Finding]
Check = Callable[[TrainConfig], Findings]
StartCheck = Callable[[TrainConfig, World], Findings]

RULES: dict[str, tuple[tuple[str, ...], Check]] = {}
"""Rules about the config alone, by name."""

START_RULES: dict[str, tuple[tuple[str, ...], StartCheck]] = {}
"""Rules about a run that is about to start here: its processes, its files, its packages."""

SHARPENED: dict[str, str] = {}
"""Rules about a start by name, with the rule about the config alone that their findings replace."""


def rule(*reads: str) -> Callable[[Check], Check]:
    """Register a rule about the config alone; ``reads`` are the dotted options it looks at."""

    def register(function: Check) -> Check:
        RULES[function.__name__] = (reads, function)
        return function

    return register


def start_rule(*reads: str, sharpens: str | None = None) -> Callable[[StartCheck], StartCheck]:
    """Register a rule that needs to know the processes, or the machine.

    Args:
        reads: the dotted options it looks at.
        sharpens: a rule about the config alone that says the same, knowing less; it is silent
            where this one speaks.
    """

    def register(function: StartCheck) -> StartCheck:
        START_RULES[function.__name__] = (reads, function)
        if sharpens is not None:
            SHARPENED[function.__name__] = sharpens
        return function

    return register


def check(config: TrainConfig, world: World | None = None) -> list[Finding]:
    """Every broken rule.

    Args:
        config: a config whose single options are valid.
        world: the processes; without it the rules about a start are left out.
    """
    for module in ("rules_model", "rules_data", "rules_parallel"):
        import_module(f"titan_pretrain.config.{module}")  # they register themselves
    findings = {
        name: [replace(found, reads=reads) for found in function(config)]
        for name, (reads, function) in RULES.items()
    }
    if world is not None:
        for name, (reads, start_function) in START_RULES.items():
            findings[name] = [replace(found, reads=reads) for found in start_function(config, world)]
            if findings[name] and name in SHARPENED:
                findings[SHARPENED[name]] = []
    return list(chain.from_iterable(findings.values()))


def broken(config: TrainConfig, option: str, must: str, way_out: str = "", *, origin: str = "") -> Finding:
    """``option (value): must ...; way out``."""
    value = get_value(config, option)
    shown = f"[{option}]" if isinstance(value, Section) else f"{option} ({show_value(value)})"
    text = f"{shown}: {must}"
    return Finding(option, f"{text}; {way_out}" if way_out else text, origin=origin or None)


def nearest(
    value: int, is_legal: Callable[[int], bool], *, high: int | None = None, way_out: str = "use {}"
) -> str:
    """The way out with the legal numbers nearest to ``value``, below and above; empty for none."""
    below = range(value - 1, max(0, value - SEARCH_STEPS), -1)
    above = range(value + 1, min(value + SEARCH_STEPS, high or value + SEARCH_STEPS) + 1)
    found = [next(filter(is_legal, side), None) for side in (below, above)]
    numbers = " or ".join(str(n) for n in found if n is not None)
    return way_out.format(numbers) if numbers else ""
