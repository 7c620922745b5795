"""Sphinx configuration; also writes the list of options from the config schema before each build."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "apps/pretrain/src"))

from titan_pretrain._version import __version__  # noqa: E402
from titan_pretrain.config.dump import options_table  # noqa: E402
from titan_pretrain.config.presets import presets  # noqa: E402

project = "TorchTitan for Volta and Turing"
author = "TorchTitan for Volta and Turing contributors"
copyright = f"2026, {author}"  # noqa: A001
release = __version__

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "_generated", "requirements.txt"]
highlight_language = "none"  # most blocks are commands or their output

html_theme = "pydata_sphinx_theme"
html_title = "Titan"
html_show_sourcelink = False
html_sidebars = {"**": []}  # a handful of pages, all in the header
html_theme_options = {
    "header_links_before_dropdown": 8,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": False,
    "show_toc_level": 2,
}


def write_generated() -> None:
    """Write the tables that configuration.md includes."""
    folder = Path(__file__).parent / "_generated"
    folder.mkdir(exist_ok=True)
    (folder / "options.md").write_text("\n".join(option_lines()), encoding="utf-8")
    rows = [f"| `{preset.name}` | {preset.summary} |" for preset in presets()]
    table = ["| preset | what it is |", "|---|---|", *rows, ""]
    (folder / "presets.md").write_text("\n".join(table), encoding="utf-8")


def option_lines() -> list[str]:
    """Every option as Markdown, a heading and a table per section."""
    sections: dict[str, list[str]] = {}  # a nested section interrupts its parent's options
    for option, default in options_table():
        cells = (f"`{option.path[-1]}`", f"`{default}`", option.rule, option.docs)
        row = f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
        sections.setdefault(".".join(option.path[:-1]), []).append(row)
    head = ["| option | default | rule | meaning |", "|---|---|---|---|"]
    return [line for name, rows in sections.items() for line in (f"### `[{name}]`", "", *head, *rows, "")]


write_generated()
