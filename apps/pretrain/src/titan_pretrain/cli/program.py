"""How the program's help is laid out, and what it says to a word that is no command."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

import click

from titan_pretrain.cli.options import TORCHRUN

__all__ = ["Group", "Program"]


class Group(click.Group):
    """A group that answers an unknown command with the nearest one, in every version of click."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or say what may have been meant."""
        name = args[0]
        if self.get_command(ctx, name.replace("_", "-")) is None and not name.startswith("-"):
            raise click.UsageError(f"no such command `{name}`\n  hint: {self.hint_for(ctx, name)}")
        return super().resolve_command(ctx, args)

    def hint_for(self, ctx: click.Context, name: str) -> str:
        """What the user may have meant by ``name``."""
        commands = self.list_commands(ctx)
        near = get_close_matches(name, commands, n=1, cutoff=0.5)
        if near:
            return f"did you mean `{ctx.command_path} {near[0]}`?"
        return f"commands of `{ctx.command_path}`: {', '.join(commands)}"


class Program(Group):
    """The outermost group: its help lists torchrun's options apart, and it knows configs when it sees one."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options in two lists, then the commands."""
        launching = {"nproc", *(name.replace("-", "_") for name in TORCHRUN)}
        records: dict[bool, list[tuple[str, str]]] = {False: [], True: []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                records[parameter.name in launching].append(record)
        _write_list(formatter, "Options", records[False])
        _write_list(formatter, "Processes (torchrun's options, passed on)", records[True])
        self.format_commands(ctx, formatter)

    def hint_for(self, ctx: click.Context, name: str) -> str:
        """A config's name without ``--config`` is the usual slip."""
        is_preset = name in _preset_names()
        if is_preset or name.endswith(".toml") or ":" in name:
            return f"did you mean `{ctx.command_path} --config {name}`?"
        if name == "train":
            return f"training needs no command: `{ctx.command_path} --config NAME`"
        option = next((param.opts[0] for param in self.params if f"--{name}" in param.opts), None)
        if option is not None:
            return f"did you mean `{ctx.command_path} {option}`?"
        return super().hint_for(ctx, name)


def _preset_names() -> set[str]:
    """Names of the preset files, without the config package: this module must stay light."""
    folder = Path(__file__).parent.parent / "presets"
    return {path.stem for path in folder.glob("*.toml")}


def _write_list(formatter: click.HelpFormatter, title: str, records: Sequence[tuple[str, str]]) -> None:
    with formatter.section(title):
        formatter.write_dl(records)
