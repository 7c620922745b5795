"""The presets: their shapes, their names, and that each can be shown and loaded again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from titan_pretrain.config import load_config
from titan_pretrain.config.dump import to_toml
from titan_pretrain.config.presets import presets
from titan_pretrain.config.sections import ModelConfig

Complain = Callable[..., list[str]]
NAMES = [preset.name for preset in presets()]

# Parameters of the published models; for the first two our own.
PARAMETERS = {
    "llama3_debug": 5_834_496,
    "llama3_160m": 160_457_472,
    "llama3_1b": 1_235_814_400,
    "llama3_3b": 3_212_749_824,
    "llama3_8b": 8_030_261_248,
    "llama3_70b": 70_553_706_496,
    "llama3_405b": 405_853_388_800,
}


def _parameters(model: ModelConfig) -> int:
    attention = 2 * model.dim**2 + 2 * model.dim * model.n_kv_heads * model.head_dim
    block = attention + 3 * model.dim * model.ffn_dim + 2 * model.dim
    embeddings = model.vocab_size * model.dim * (1 if model.tied_embeddings else 2)
    return model.n_layers * block + model.dim + embeddings


def test_list_is_complete_and_sorted_by_size() -> None:
    assert list(PARAMETERS) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_parameters(name: str) -> None:
    assert _parameters(load_config(name).config.model) == PARAMETERS[name]


@pytest.mark.parametrize(("name", "factor", "tied"), [("1b", 32, True), ("3b", 32, True), ("8b", 8, False)])
def test_llama_3_1_and_3_2(name: str, factor: float, tied: bool) -> None:
    model = load_config(f"llama3_{name}").config.model
    scaling = model.rope_scaling
    assert scaling is not None
    assert (scaling.factor, scaling.low_freq_factor, scaling.high_freq_factor) == (factor, 1, 4)
    assert (scaling.original_max_seq_len, model.rope_theta, model.vocab_size) == (8192, 500_000, 128_256)
    assert model.tied_embeddings == tied


@pytest.mark.parametrize("docs", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_shown_and_loaded_again(name: str, docs: bool) -> None:
    config = load_config(name).config
    Path("shown.toml").write_text(to_toml(config, docs=docs))
    assert load_config("shown.toml").config == config


@pytest.mark.parametrize("name", NAMES)
def test_runs_on_powers_of_two_processes(name: str) -> None:
    from titan_pretrain.config.rules import World, check

    config = load_config(name, overrides=["tokenizer.path=none", "data.dataset=python-stdlib"]).config
    for size in (1, 2, 4, 8):
        assert check(config, World(size, "")) == []


@pytest.mark.parametrize("name", NAMES)
def test_names_itself_and_says_what_it_is(name: str) -> None:
    preset = next(preset for preset in presets() if preset.name == name)
    assert load_config(name).config.run.name == name
    assert "parameters" in preset.summary or "M" in preset.summary


def test_a_file_builds_on_a_preset() -> None:
    Path("run.toml").write_text(
        'preset = "llama3_8b"\n[optim]\nlr = 1e-4\n[model.rope_scaling]\nfactor = 4.0\n'
    )
    loaded = load_config("run.toml")
    assert loaded.config.model.dim == 4096
    assert loaded.config.optim.lr == 1e-4
    scaling = loaded.config.model.rope_scaling
    assert scaling is not None
    assert (scaling.factor, scaling.original_max_seq_len) == (4.0, 8192)
    assert loaded.sources["optim.lr"] == "run.toml:3"
    assert loaded.sources["model.dim"] == "llama3_8b.toml:8"


@pytest.mark.parametrize(
    ("module", "config", "expected"),
    [("llama3", "llama3_8b", 4096), ("llama3", "8b", 4096), ("llama3", "debug", 256)],
)
def test_module_as_torchtitan_users_type_it(module: str, config: str, expected: int) -> None:
    assert load_config(config, module=module).config.model.dim == expected


@pytest.mark.parametrize(
    ("module", "config", "message"),
    [
        (
            None,
            "llama3_debgu",
            "--config llama3_debgu: no preset `llama3_debgu`\ndid you mean `llama3_debug`?",
        ),
        (
            None,
            "llama3_debugmodel",
            "--config llama3_debugmodel: no preset `llama3_debugmodel`\ndid you mean `llama3_debug`?",
        ),
        (
            "llama3",
            "llama3_debugmodel",
            "--module llama3 --config llama3_debugmodel: no preset `llama3_debugmodel`\n"
            "did you mean `llama3_debug`?",
        ),
        (None, "8b", "--config 8b: no preset `8b`\ndid you mean `llama3_8b`?"),
        (
            None,
            "",
            f"--config : no preset ``\npresets: {', '.join(NAMES)}; or give a TOML file or module:function",
        ),
    ],
)
def test_unknown_name(complaints: Complain, module: str | None, config: str, message: str) -> None:
    assert complaints(config, module=module) == [message]
