"""``config show | validate | diff | schema`` and ``presets``: data on stdout, messages on stderr."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from titan_pretrain.cli.messages import note
from titan_pretrain.cli.options import ConfigChoice, config_options
from titan_pretrain.cli.program import Group

if TYPE_CHECKING:
    from titan_pretrain.config import LoadedConfig, World

__all__ = ["config", "presets"]

JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
NAME = click.argument("name", required=False, metavar="[CONFIG]")


def _load(name: str | None, params: dict[str, Any], world: World | None = None) -> LoadedConfig:
    """Load the config named by the argument or by ``--config``."""
    option = params["config"]
    if name is not None and option is not None:
        raise click.UsageError(f"two configs: {name} and --config {option}")
    chosen = name or option
    if chosen is None:
        raise click.UsageError("which config?\n  hint: name a preset, a TOML file or module:function")
    return ConfigChoice(chosen, params["module"], params["overrides"]).load(world)


@click.group(cls=Group)
def config() -> None:
    """Look at configs: show, validate, diff, schema."""


@config.command()
@NAME
@config_options
@JSON
@click.option("--docs", is_flag=True, help="Write each option's documentation above it.")
@click.option("--defaults", is_flag=True, help="Show the defaults, of no config.")
def show(name: str | None, as_json: bool, docs: bool, defaults: bool, **params: Any) -> None:
    """Print a config with all its options, as TOML that loads to the same config."""
    from titan_pretrain.config import LoadedConfig, TrainConfig
    from titan_pretrain.config.dump import to_json, to_toml

    if defaults and (name or params["config"] or params["overrides"]):
        raise click.UsageError("--defaults shows no config's options, so it takes no config and no --set")
    loaded = LoadedConfig(TrainConfig(), {}) if defaults else _load(name, params)
    text = to_json(loaded.config, loaded.sources) if as_json else to_toml(loaded.config, docs=docs)
    click.echo(text.rstrip("\n"))


@config.command()
@NAME
@config_options
@JSON
@click.option(
    "--world-size", type=click.IntRange(min=1), metavar="N", help="Check for N processes, on this machine."
)
def validate(name: str | None, as_json: bool, world_size: int | None, **params: Any) -> int:
    """Check a config: every mistake at once, exit code 2 if there is one."""
    from titan_pretrain.config import World
    from titan_pretrain.errors import ConfigError

    world = World(world_size, f"--world-size {world_size}") if world_size else None
    problems = []
    try:
        _load(name, params, world)
    except ConfigError as error:
        if not as_json:
            raise
        problems = [{"message": problem.message, "hint": problem.hint} for problem in error.problems]
    if as_json:
        click.echo(json.dumps({"schema_version": 1, "valid": not problems, "problems": problems}, indent=2))
    else:
        note("valid" if world else "valid (the rules about processes and files need --world-size)")
    return 2 if problems else 0


@config.command()
@click.argument("old")
@click.argument("new")
@JSON
def diff(old: str, new: str, as_json: bool) -> None:
    """Print the options in which two configs differ."""
    from titan_pretrain.config.dump import difference, toml_value

    first, second = (ConfigChoice(name, None, ()).load() for name in (old, new))
    changed = difference(first.config, second.config)
    if as_json:
        pairs = {name: {"old": a, "new": b} for name, (a, b) in changed.items()}
        click.echo(json.dumps({"schema_version": 1, "changed": pairs}, indent=2))
        return
    for name, (a, b) in changed.items():
        click.echo(f"{name}: {toml_value(a)} -> {toml_value(b)}")
    if not changed:
        note("no difference")


@config.command()
@JSON
def schema(as_json: bool) -> None:
    """Print every option with its rule, its default and its documentation."""
    from titan_pretrain.config import TrainConfig
    from titan_pretrain.config.dump import options_table

    if as_json:
        click.echo(json.dumps({"schema_version": 1, **TrainConfig.model_json_schema()}, indent=2))
        return
    for option, default in options_table():
        click.echo(f"{click.style(option.name, bold=True)} = {default}\n    {option.rule}\n    {option.docs}")


@click.command()
@JSON
def presets(as_json: bool) -> None:
    """List the presets."""
    from titan_pretrain.config.presets import presets as all_presets

    found = all_presets()
    if as_json:
        rows = [{"name": preset.name, "summary": preset.summary} for preset in found]
        click.echo(json.dumps({"schema_version": 1, "presets": rows}, indent=2))
        return
    width = max(len(preset.name) for preset in found)
    for preset in found:
        click.echo(f"{preset.name:{width}}  {preset.summary}")
