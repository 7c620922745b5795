"""From what the user typed to a checked config, with every mistake reported at once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from titan_pretrain.config import python_config
from titan_pretrain.config.fields import KeyPath, show_value
from titan_pretrain.config.overrides import parse_override
from titan_pretrain.config.presets import Preset, find_preset, presets, suggest_preset
from titan_pretrain.config.problems import Layer, MistakeError, check_layer
from titan_pretrain.config.rules import Finding, World, check
from titan_pretrain.config.sections import RUN_NAME, TrainConfig
from titan_pretrain.config.toml_file import read_toml
from titan_pretrain.errors import ConfigError, UsageError

__all__ = ["LoadedConfig", "load_config"]


@dataclass(frozen=True)
class LoadedConfig:
    """A config that obeys every rule.

    Attributes:
        sources: where each set option comes from: ``{"optim.lr": "run.toml:7"}``.
    """

    config: TrainConfig
    sources: Mapping[str, str]


def load_config(
    config: str, *, module: str | None = None, overrides: Sequence[str] = (), world: World | None = None
) -> LoadedConfig:
    """Read, merge and check a config.

    Args:
        config: a preset's name, a TOML file or ``module:function``.
        module: as torchtitan's ``--module``: ``llama3`` with config ``8b`` is ``llama3_8b``.
        overrides: ``section.key=value`` each; the last wins.
        world: number of processes, when it is known; the rules about it run only then.

    Raises:
        ConfigError: with every mistake found.
    """
    problems: list[UsageError] = []
    layers = _read_layers(config, module, overrides, problems)
    is_complete = not problems
    merged: dict[str, Any] = {}
    broken: set[KeyPath] = set()
    for layer in layers:
        data, found, removed = check_layer(layer)
        problems += found
        broken |= removed
        _merge(merged, data)
    result = TrainConfig.model_validate(merged)
    if is_complete:  # the rules can't judge a config of which a part is missing
        findings = check(result, world=world)
        problems += [_locate(finding, layers) for finding in findings if not _touches(finding, broken)]
    if problems:
        raise ConfigError(_in_reading_order(problems))
    return LoadedConfig(result, _sources(merged, layers))


def _read_layers(
    config: str, module: str | None, overrides: Sequence[str], problems: list[UsageError]
) -> list[Layer]:
    """All layers that can be read, weakest first; the others' problems are added to ``problems``."""
    layers: list[Layer] = []
    try:
        layers += _read_config(config, module, problems)
    except ConfigError as error:
        problems += error.problems
    except UsageError as error:
        problems.append(error)
    for override in overrides:
        _try_override(override, layers, problems)
    return layers


def _try_override(text: str, layers: list[Layer], problems: list[UsageError]) -> None:
    try:
        layers.append(parse_override(text))
    except UsageError as error:
        problems.append(error)


def _read_config(config: str, module: str | None, problems: list[UsageError]) -> list[Layer]:
    if module is not None:
        return _read_module(module, config)
    preset = find_preset(config)
    if preset is not None:
        return [_read_preset(preset)]
    if ":" in config and not Path(config).is_file():
        return [python_config.read_python(config)]
    if config and ("/" in config or Path(config).suffix or Path(config).exists()):
        return _read_file(config, problems)
    raise _no_such_preset(f"--config {config}", config)


def _read_module(module: str, config: str) -> list[Layer]:
    for name in (config, f"{module}_{config}"):
        preset = find_preset(name)
        if preset is not None:
            return [_read_preset(preset)]
    if python_config.module_exists(module):
        return [python_config.read_python(f"{module}:{config}")]
    where = f"--module {module} --config {config}"
    raise _no_such_preset(where, config if suggest_preset(config) else f"{module}_{config}")


def _no_such_preset(where: str, name: str) -> MistakeError:
    near = suggest_preset(name)
    known = ", ".join(preset.name for preset in presets())
    hint = f"did you mean `{near}`?" if near else f"presets: {known}; or give a TOML file or module:function"
    return MistakeError(where, f"no preset `{name}`", hint)


def _read_preset(preset: Preset) -> Layer:
    return read_toml(preset.path, shown=f"{preset.name}.toml")


def _read_file(name: str, problems: list[UsageError]) -> list[Layer]:
    path = Path(name).expanduser()
    if path.suffix.lower() in (".yaml", ".yml", ".json") and path.is_file():
        text = f"configs are TOML, not {path.suffix[1:].upper()}"
        raise MistakeError(name, text, "`titan-pretrain config show` prints one")
    if path.suffix == ".py" and path.is_file():
        raise MistakeError(name, "a Python config is named module:function", f"write {path.stem}:FUNCTION")
    layer = read_toml(path, name)
    named = {"run": {"name": path.stem}} if re.fullmatch(RUN_NAME, path.stem) else {}
    own = {key: value for key, value in layer.data.items() if key != "preset"}
    layers = [Layer(named, lambda _: name), Layer(own, layer.locate)]
    if "preset" in layer.data:
        try:
            layers.insert(0, _base_preset(layer.data["preset"], layer))  # its name is the file's, too
        except UsageError as error:  # the file's own mistakes are worth telling too
            problems.append(error)
    return layers


def _base_preset(name: Any, layer: Layer) -> Layer:
    preset = find_preset(name) if isinstance(name, str) else None
    if preset is not None:
        return _read_preset(preset)
    near = suggest_preset(name) if isinstance(name, str) else None
    known = ", ".join(preset.name for preset in presets())
    hint = f'did you mean "{near}"?' if near else f"presets: {known}"
    raise MistakeError(layer.locate(("preset",)), f"preset ({show_value(name)}): no such preset", hint)


def _merge(base: dict[str, Any], layer: Mapping[str, Any]) -> None:
    """Write ``layer`` over ``base``, section by section."""
    for key, value in layer.items():
        if isinstance(value, Mapping):
            below = base.get(key)
            base[key] = dict(below) if isinstance(below, Mapping) else {}
            _merge(base[key], value)
        else:
            base[key] = value


def _touches(finding: Finding, broken: set[KeyPath]) -> bool:
    """Whether a rule read an option the user got wrong: its verdict would be about a default."""
    names = {".".join(path) for path in broken}
    return any(name == read or read.startswith(f"{name}.") for read in finding.reads for name in names)


def _locate(finding: Finding, layers: Sequence[Layer]) -> MistakeError:
    """Name what the user typed last: the option itself, or another one that takes part in the rule."""
    paths = [tuple(name.split(".")) for name in (finding.option, *finding.reads)]
    places = (layer.locate(path) for layer in reversed(layers) for path in paths if _has(layer.data, path))
    return MistakeError(next(places, finding.origin or "defaults"), finding.text, finding.hint)


def _in_reading_order(problems: Sequence[UsageError]) -> list[UsageError]:
    """File by file as they were read, line by line."""
    places = [getattr(problem, "where", "").rpartition(":") for problem in problems]
    keys = [(name, int(line)) if line.isdigit() else (f"{name}:{line}", 0) for name, _, line in places]
    names = [name for name, _ in keys]
    order = sorted(range(len(problems)), key=lambda i: (names.index(keys[i][0]), keys[i][1]))
    return [problems[i] for i in order]


def _last_place(path: KeyPath, layers: Sequence[Layer]) -> str | None:
    return next((layer.locate(path) for layer in reversed(layers) if _has(layer.data, path)), None)


def _has(data: Any, path: KeyPath) -> bool:
    for part in path:
        if not isinstance(data, Mapping) or part not in data:
            return False
        data = data[part]
    return True


def _sources(merged: Mapping[str, Any], layers: Sequence[Layer], prefix: KeyPath = ()) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, value in merged.items():
        path = (*prefix, key)
        if isinstance(value, Mapping):
            found |= _sources(value, layers, path)
        else:
            found[".".join(path)] = _last_place(path, layers) or "defaults"
    return found
