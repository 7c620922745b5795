"""Writes docs/options.md, the list of presets and options, from the package; run it when either changes."""

from __future__ import annotations

from pathlib import Path

from titan_pretrain.config.dump import options_table
from titan_pretrain.config.presets import presets

PAGE = Path(__file__).resolve().parent.parent / "docs/options.md"
HEAD = """\
# Presets and options

<!-- Written by scripts/write_options.py; edit titan_pretrain/config/sections.py instead. -->

`titan-pretrain presets` and `titan-pretrain config schema` print these lists in the terminal.

"""


def page() -> str:
    """The whole page."""
    return HEAD + "\n".join(["## Presets", "", *preset_lines(), "", "## Options", "", *option_lines()])


def preset_lines() -> list[str]:
    """Every preset as a row of a Markdown table."""
    rows = [f"| `{preset.name}` | {preset.summary} |" for preset in presets()]
    return ["| preset | what it is |", "|---|---|", *rows]


def option_lines() -> list[str]:
    """Every option as Markdown, a heading and a table per section."""
    sections: dict[str, list[str]] = {}  # a nested section interrupts its parent's options
    for option, default in options_table():
        cells = (f"`{option.path[-1]}`", f"`{default}`", option.rule, option.docs)
        row = f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
        sections.setdefault(".".join(option.path[:-1]), []).append(row)
    head = ["| option | default | rule | meaning |", "|---|---|---|---|"]
    return [line for name, rows in sections.items() for line in (f"### `[{name}]`", "", *head, *rows, "")]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
