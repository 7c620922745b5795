"""Sphinx configuration."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "apps/pretrain/src"))

from titan_pretrain._version import __version__  # noqa: E402

project = "TorchTitan for Volta and Turing"
author = "TorchTitan for Volta and Turing contributors"
copyright = f"2026, {author}"  # noqa: A001
release = __version__

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "requirements.txt"]
highlight_language = "none"  # most blocks are commands or their output

html_theme = "pydata_sphinx_theme"
html_title = "Titan"
html_show_sourcelink = False
html_sidebars = {"**": []}  # a handful of pages, all in the header
html_theme_options = {
    "header_links_before_dropdown": 9,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": False,
    "show_toc_level": 2,
}
