"""No dict, no bytes and no ``--set`` make the loader raise anything but its own errors."""

from __future__ import annotations

import datetime
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from titan_pretrain.config import TrainConfig, World, load_config
from titan_pretrain.config.dump import to_toml
from titan_pretrain.config.fields import options
from titan_pretrain.errors import ConfigError

relaxed = settings(
    max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)

NAMES = sorted({part for path in options() for part in path})
VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-2, 300),
    st.sampled_from([10**400, -(2**63), 2**53, float("inf"), float("nan"), 5e-324, 1e308, -0.0]),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["none", "auto", "fp16", "text", "hf:", "hf://x", "a:b", "True", "1e-3", "\udcff", "\0"]),
    st.binary(max_size=4),
    st.dates(),
    st.builds(datetime.time),
    st.just(object()),
    st.just(int),
)
KEYS = st.one_of(st.sampled_from(NAMES), st.text(max_size=6), st.integers(0, 3))
NONSENSE = st.recursive(
    VALUES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=4)),
    max_leaves=12,
)
SECTIONS = st.dictionaries(
    st.sampled_from(sorted(TrainConfig.model_fields)), st.dictionaries(KEYS, NONSENSE, max_size=5), max_size=4
)


def _valid_options() -> st.SearchStrategy[dict[str, Any]]:
    """Values of the right type, so that the rules get to see impossible combinations."""
    numbers = [path for path, option in options().items() if option.kind is int and len(path) == 2]
    return st.dictionaries(st.sampled_from(numbers), st.integers(1, 2**53), max_size=8).map(_nested)


def _nested(flat: dict[tuple[str, ...], int]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for (section, key), value in flat.items():
        tree.setdefault(section, {})[key] = value
    return tree


@pytest.fixture(scope="module")
def answer() -> Iterator[list[Any]]:
    """What the function ``nonsense:f`` returns, in a list of one."""
    module = types.ModuleType("nonsense")
    box: list[Any] = [None]
    module.f = lambda: box[0]  # type: ignore[attr-defined]
    sys.modules["nonsense"] = module
    yield box
    del sys.modules["nonsense"]


def _load(config: str, overrides: tuple[str, ...] = ()) -> None:
    """Load; mistakes must be readable, and what has none must survive being shown."""
    try:
        loaded = load_config(config, overrides=overrides, world=World(3, "--nproc 3"))
    except ConfigError as error:
        _check_messages([problem.message for problem in error.problems])
    else:
        text = to_toml(loaded.config)
        Path("again.toml").write_text(text)
        assert load_config("again.toml").config == loaded.config


def _check_messages(messages: list[str]) -> None:
    assert messages
    for message in messages:
        assert message.strip()
        assert "\n" not in message
        assert "pydantic" not in message
        assert len(message) < 1000


@pytest.mark.slow
@relaxed
@given(st.one_of(SECTIONS, NONSENSE, st.dictionaries(KEYS, NONSENSE)))
def test_any_dict(answer: list[Any], data: Any) -> None:
    answer[0] = data
    _load("nonsense:f")


@pytest.mark.slow
@relaxed
@given(_valid_options())
def test_any_numbers(answer: list[Any], data: dict[str, Any]) -> None:
    answer[0] = data
    _load("nonsense:f")


@relaxed
@given(
    st.one_of(st.binary(max_size=60), st.text(max_size=60).map(lambda text: text.encode("utf-8", "replace")))
)
def test_any_file(data: bytes) -> None:
    Path("any.toml").write_bytes(data)
    _load("any.toml")


@relaxed
@given(
    st.tuples(
        st.one_of(st.text(), st.sampled_from([option.name for option in options().values()])), st.text()
    )
)
def test_any_override(pair: tuple[str, str]) -> None:
    _load("llama3_debug", (f"{pair[0]}={pair[1]}", pair[1]))


@relaxed
@given(st.text(max_size=20))
def test_any_name(name: str) -> None:
    _load(name)


def test_a_dict_that_holds_itself(answer: list[Any]) -> None:
    loop: dict[str, Any] = {"model": {}}
    loop["model"]["dim"] = loop
    answer[0] = loop
    _load("nonsense:f")
