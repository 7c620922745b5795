"""``--set``: TOML values, bare texts, and what can be wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from titan_pretrain.config import load_config
from titan_pretrain.config.fields import get_value

Complain = Callable[..., list[str]]


@pytest.mark.parametrize(
    ("text", "option", "value"),
    [
        ("optim.lr=1e-3", "optim.lr", 1e-3),
        ("optim.lr = 1", "optim.lr", 1.0),
        ("training.steps=1_000", "training.steps", 1000),
        ("run.dir=/a/b c", "run.dir", "/a/b c"),
        ('run.dir="quoted"', "run.dir", "quoted"),
        ("run.name=123", "run.name", "123"),
        ("run.name=2024-01-01", "run.name", "2024-01-01"),
        ("run.name=true", "run.name", "true"),
        ("run.dir=a=b", "run.dir", "a=b"),
        ("run.dir=a#b", "run.dir", "a#b"),
        ("tokenizer.path=none", "tokenizer.path", None),
        ("optim.max_grad_norm=none", "optim.max_grad_norm", None),
        ("activation.checkpoint=none", "activation.checkpoint", "none"),
        ("model.rope_scaling={factor = 4.0}", "model.rope_scaling.factor", 4.0),
        ("model.rope_scaling.factor=4.0", "model.rope_scaling.factor", 4.0),
        ("training.global_batch_size=16", "training.global_batch_size", 16),
        ("metrics.report=false", "metrics.report", False),
    ],
)
def test_value(text: str, option: str, value: Any) -> None:
    loaded = load_config("llama3_debug", overrides=[text])
    assert get_value(loaded.config, option) == value
    assert loaded.sources[option] == f"--set {text}"


@pytest.mark.parametrize(
    ("text", "paths"), [("a/*.txt", ("a/*.txt",)), ('["a", "b"]', ("a", "b")), ("12", ("12",))]
)
def test_paths(text: str, paths: tuple[str, ...]) -> None:
    sets = ["data.dataset=text", f"data.path={text}"]
    assert load_config("llama3_debug", overrides=sets).config.data.path == paths


def test_the_last_wins() -> None:
    loaded = load_config("llama3_debug", overrides=["optim.lr=1.0", "optim.lr=2.0"])
    assert loaded.config.optim.lr == 2.0
    assert loaded.sources["optim.lr"] == "--set optim.lr=2.0"


def test_a_section_can_be_taken_away() -> None:
    assert load_config("llama3_1b").config.model.rope_scaling is not None
    loaded = load_config("llama3_1b", overrides=["model.rope_scaling=none"])
    assert loaded.config.model.rope_scaling is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("optim.lrr=1", "--set optim.lrr=1: unknown key `optim.lrr`\ndid you mean `optim.lr`?"),
        ("optim.lr", "--set optim.lr: must look like section.key=value, such as optim.lr=1e-3"),
        ("=1", "--set =1: must look like section.key=value, such as optim.lr=1e-3"),
        ("optim..lr=1", "--set optim..lr=1: must look like section.key=value, such as optim.lr=1e-3"),
        ("optim.lr=", '--set optim.lr=: optim.lr (""): must be a number above 0'),
        (
            "optim.lr=.1",
            '--set optim.lr=.1: optim.lr (".1"): must be a number above 0\nwrite 0.1, without quotes',
        ),
        ("optim=1", "--set optim=1: optim (1): must be a section with keys such as `optim.lr`"),
        ("optim.lr.x=1", "--set optim.lr.x=1: optim.lr ({'x': 1}): must be a number above 0"),
        (
            "preset=llama3_8b",
            "--set preset=llama3_8b: a preset is chosen by --config\nwrite --config llama3_8b",
        ),
        ("run.dir=\udcff", "--set run.dir=\\udcff: is not UTF-8 text"),
        (
            "data.path=[a, b]",
            "--set data.path=[a, b]: not a valid TOML value: Invalid value (at line 1, column 10)\n"
            'quote texts in lists: ["a", "b"]',
        ),
    ],
)
def test_mistake(complaints: Complain, text: str, message: str) -> None:
    assert complaints("llama3_debug", [text]) == [message]
