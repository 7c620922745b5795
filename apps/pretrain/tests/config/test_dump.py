"""Configs as TOML, their differences, and the list of options."""

from __future__ import annotations

import json
from pathlib import Path

from titan_pretrain.config import TrainConfig, load_config
from titan_pretrain.config.dump import difference, flatten, options_table, to_json, to_toml, toml_value
from titan_pretrain.config.fields import options


def test_every_option_is_shown() -> None:
    text = to_toml(load_config("llama3_1b", overrides=["validation.data={}"]).config)
    section = ""
    shown = set()
    for line in text.splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line:
            shown.add(f"{section}.{line.partition(' ')[0]}")
    assert shown == {option.name for option in options().values() if option.section is None}


def test_awkward_texts_survive() -> None:
    awkward = 'a "b" \\ c\tü\n\x7f\x01 #=[]'
    config = TrainConfig.model_validate(
        {
            "run": {"dir": awkward},
            "data": {"path": [awkward, "x"], "dataset": "text"},
            "optim": {"lr": 1e-300},
        }
    )
    Path("shown.toml").write_text(to_toml(config), encoding="utf-8")
    assert load_config("shown.toml").config == config


def test_docs_are_comments() -> None:
    text = to_toml(TrainConfig(), docs=True)
    assert "# Peak learning rate.  (a number above 0)".replace("  ", " ") in text
    assert "# AdamW (Loshchilov and Hutter, arXiv:1711.05101).\n[optim]" in text


def test_spelling() -> None:
    values = [None, True, 1, 1e-5, "a", ("a", "b"), ()]
    assert [toml_value(value) for value in values] == [
        '"none"',
        "true",
        "1",
        "1e-05",
        '"a"',
        '["a", "b"]',
        "[]",
    ]


def test_difference() -> None:
    old, new = load_config("llama3_debug").config, load_config("llama3_8b").config
    changed = difference(old, new)
    assert changed["model.dim"] == (256, 4096)
    assert changed["model.rope_scaling.factor"] == (None, 8.0)
    assert "model.rope_theta" not in changed
    assert difference(old, old) == {}


def test_flatten_names_every_option() -> None:
    flat = flatten(TrainConfig())
    assert flat["optim.lr"] == 2e-3
    assert flat["model.rope_scaling"] is None


def test_options_table_documents_everything() -> None:
    rows = list(options_table())
    assert len(rows) > 60
    for option, default in rows:
        assert option.docs, option.name
        assert option.rule, option.name
        assert default, option.name


def test_json_has_sources() -> None:
    loaded = load_config("llama3_debug", overrides=["optim.lr=1.0"])
    document = json.loads(to_json(loaded.config, loaded.sources))
    assert document["config"]["optim"]["lr"] == 1.0
    assert document["sources"]["optim.lr"] == "--set optim.lr=1.0"
    assert document["schema_version"] == 1
