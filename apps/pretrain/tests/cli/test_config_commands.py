"""``config`` and ``presets``: data on stdout, messages on stderr."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from titan_pretrain.cli.messages import error_lines, say
from titan_pretrain.config import TrainConfig, load_config

Run = Callable[..., Any]


@pytest.mark.parametrize("extra", [[], ["--docs"]])
def test_show_is_loadable(run: Run, extra: list[str]) -> None:
    result = run("config", "show", "llama3_8b", "--set", "optim.lr=1e-4", *extra)
    assert (result.code, result.err) == (0, "")
    Path("shown.toml").write_text(result.out)
    assert load_config("shown.toml").config == load_config("llama3_8b", overrides=["optim.lr=1e-4"]).config


def test_show_takes_the_options_of_training(run: Run) -> None:
    by_name = run("config", "show", "llama3_8b").out
    assert run("config", "show", "--config", "llama3_8b").out == by_name
    assert run("config", "show", "--module", "llama3", "--config", "8b").out == by_name
    assert run("config", "show", "llama3_8b", "--config", "llama3_1b").code == 2


def test_show_defaults(run: Run) -> None:
    Path("shown.toml").write_text(run("config", "show", "--defaults").out)
    assert load_config("shown.toml").config == TrainConfig()
    assert run("config", "show", "--defaults", "llama3_1b").code == 2


def test_show_json(run: Run) -> None:
    document = json.loads(run("config", "show", "llama3_debug", "--set", "optim.lr=1.0", "--json").out)
    assert TrainConfig.model_validate_json(json.dumps(document["config"])).optim.lr == 1.0
    assert document["sources"]["optim.lr"] == "--set optim.lr=1.0"


def test_show_without_a_config(run: Run) -> None:
    result = run("config", "show")
    assert result.code == 2
    assert result.err == "error: which config?\n  hint: name a preset, a TOML file or module:function\n"


def test_validate(run: Run) -> None:
    result = run("config", "validate", "llama3_debug")
    assert (result.code, result.out) == (0, "")
    assert result.err == "valid (the rules about processes and files need --world-size)\n"
    result = run("config", "validate", "llama3_debug", "--world-size", "2")
    assert (result.code, result.err) == (0, "valid\n")
    result = run(
        "config", "validate", "llama3_debug", "--world-size", "3", "--set", "parallel.dp_replicate=2"
    )
    assert (result.code, result.out) == (2, "")
    assert "the number of processes, 3" in result.err


def test_validate_json(run: Run) -> None:
    assert json.loads(run("config", "validate", "llama3_debug", "--json").out)["valid"] is True
    result = run("config", "validate", "llama3_debug", "--set", "optim.lrr=1", "--json")
    assert result.code == 2
    assert json.loads(result.out) == {
        "schema_version": 1,
        "valid": False,
        "problems": [
            {
                "message": "--set optim.lrr=1: unknown key `optim.lrr`",
                "hint": "did you mean `optim.lr`?",
            }
        ],
    }


def test_diff(run: Run) -> None:
    result = run("config", "diff", "llama3_1b", "llama3_3b")
    assert (result.code, result.err) == (0, "")
    assert "model.dim: 2048 -> 3072\n" in result.out
    assert 'run.name: "llama3_1b" -> "llama3_3b"\n' in result.out
    assert "vocab_size" not in result.out
    same = run("config", "diff", "llama3_1b", "llama3_1b")
    assert (same.code, same.out, same.err) == (0, "", "no difference\n")
    changed = json.loads(run("config", "diff", "llama3_1b", "llama3_3b", "--json").out)["changed"]
    assert changed["model.dim"] == {"old": 2048, "new": 3072}


def test_schema(run: Run) -> None:
    assert "optim.lr = 0.002\n    a number above 0\n    Peak learning rate.\n" in run("config", "schema").out
    schema = json.loads(run("config", "schema", "--json").out)
    assert schema["$defs"]["OptimConfig"]["properties"]["lr"]["description"] == "Peak learning rate."


def test_presets(run: Run) -> None:
    lines = run("presets").out.splitlines()
    assert len(lines) == 7
    assert lines[0].startswith("llama3_debug  A small Llama 3 ")
    assert [row["name"] for row in json.loads(run("presets", "--json").out)["presets"]][-1] == "llama3_405b"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("name", "coloured"), [("X", True), ("NO_COLOR", False)])
def test_colours(monkeypatch: pytest.MonkeyPatch, name: str, coloured: bool) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv(name, "1")
    monkeypatch.setattr(sys, "stderr", _Terminal())
    say(error_lines("no"))
    assert ("\x1b[" in sys.stderr.getvalue()) == coloured  # type: ignore[attr-defined]
