"""``module:function`` configs, and every way in which the user's function can fail."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from titan_pretrain.config import load_config

Complain = Callable[..., list[str]]
Write = Callable[[str], str]
_numbers = itertools.count()


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a module of a fresh name into the current folder."""
    monkeypatch.setattr("sys.path", [*sys.path])  # loading puts the current folder on it

    def write(text: str) -> str:
        name = f"my_configs_{next(_numbers)}"
        Path(f"{name}.py").write_text(text)
        return name

    return write


IMPORT = "from titan_pretrain.config.sections import *\n"


@pytest.mark.parametrize(
    "body",
    [
        "def f(): return TrainConfig(training=TrainingConfig(steps=20))",
        "def f(): return {'training': {'steps': 20}}",
        "def f(): return {'training': TrainingConfig(steps=20)}",
        "class F:\n    def __call__(self): return {'training': {'steps': 20}}\nf = F()",
    ],
)
def test_config(module: Write, body: str) -> None:
    name = module(IMPORT + body)
    loaded = load_config(f"{name}:f", overrides=["optim.lr=1.0"])
    assert (loaded.config.training.steps, loaded.config.optim.lr) == (20, 1.0)
    assert loaded.sources["training.steps"] == f"{name}:f"


def test_module_and_config_name_a_function(module: Write) -> None:
    name = module("def small(): return {'training': {'steps': 20}}")
    assert load_config("small", module=name).config.training.steps == 20


def test_overrides_reach_into_sections_the_function_set(module: Write) -> None:
    name = module(IMPORT + "def f(): return TrainConfig(model=ModelConfig(dim=512, n_layers=2))")
    model = load_config(f"{name}:f", overrides=["model.n_layers=3"]).config.model
    assert (model.dim, model.n_layers) == (512, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f():\n    return {}['x']", "{m}:f: raised KeyError: 'x' ({file}:2)"),
        ("def f(): raise ValueError('two\\nlines')", "{m}:f: raised ValueError: two lines ({file}:1)"),
        ("def f(): raise SystemExit(3)", "{m}:f: raised SystemExit: 3 ({file}:1)"),
        ("def f(): return 3", "{m}:f: must return a TrainConfig or a dict, not int"),
        ("def f(): return {1: 2}", "{m}:f: keys must be text, all the way down"),
        ("def f(): return {'optim': {'lrr': 1}}", "{m}:f: unknown key `optim.lrr`\ndid you mean `optim.lr`?"),
        (
            "def f(): return {'model': None}",
            '{m}:f: model ("none"): must be a section with keys such as `model.name`',
        ),
        ("def fun(): return {}", "{m}:f: `{m}` has no function `f`"),
        ("def ff(): return {}", "{m}:f: `{m}` has no function `f`\ndid you mean `ff`?"),
        ("f = 3", "{m}:f: `f` is no function but int"),
        ("import nowhere_to_be_found", "importing"),
        ("1/0", "importing"),
        ("def f(:", "importing"),
    ],
)
def test_failure_is_one_line(module: Write, complaints: Complain, text: str, message: str) -> None:
    name = module(text)
    file = str(Path(f"{name}.py").absolute())
    (found,) = complaints(f"{name}:f")
    if message == "importing":
        assert found.startswith(f"{name}:f: importing `{name}` raised ")
        assert f"{file}:1" in found
    else:
        assert found == message.format(m=name, file=file)


def test_function_that_wants_an_argument(module: Write, complaints: Complain) -> None:
    name = module("def f(x): return {}")
    (found,) = complaints(f"{name}:f")
    assert found.startswith(f"{name}:f: raised TypeError: f() missing 1 required positional argument: 'x'")


def test_impossible_values_in_the_function(module: Write, complaints: Complain) -> None:
    whole = module(IMPORT + "def f(): return TrainConfig(optim={'lr': -1}, training={'steps': 0})")
    assert complaints(f"{whole}:f") == [
        f"{whole}:f: training.steps (0): must be a whole number, at least 1",
        f"{whole}:f: optim.lr (-1): must be a number above 0",
    ]
    part = module(IMPORT + "def f(): return TrainConfig(optim=OptimConfig(lr=-1))")
    assert complaints(f"{part}:f") == [f"{part}:f: OptimConfig(lr): Input should be greater than 0"]


@pytest.mark.parametrize("spec", ["no_such_module_x:f", "no.such.module:f", ":f", "a b:f", "..:f", "os:"])
def test_no_such_module(complaints: Complain, spec: str) -> None:
    (found,) = complaints(spec)
    assert found.startswith(f"{spec}: ")
    assert "\n" not in found


def test_file_instead_of_module(module: Write, complaints: Complain) -> None:
    name = module("def f(): return {}")
    assert complaints(f"{name}.py") == [
        f"{name}.py: a Python config is named module:function\nwrite {name}:FUNCTION"
    ]
