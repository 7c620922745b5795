"""The presets: TOML files inside the package, chosen by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from titan_pretrain.config.near_miss import closest

__all__ = ["Preset", "find_preset", "presets", "suggest_preset"]

FOLDER = Path(__file__).parent.parent / "presets"


@dataclass(frozen=True)
class Preset:
    """A config that comes with the package.

    Attributes:
        summary: the first comment line of its file.
    """

    name: str
    path: Path
    summary: str


def presets() -> list[Preset]:
    """All presets, smallest model first."""
    found = [_read(path) for path in FOLDER.glob("*.toml")]
    return sorted(found, key=lambda preset: (_size(preset.name), preset.name))


def find_preset(name: str) -> Preset | None:
    """The preset called ``name``."""
    return next((preset for preset in presets() if preset.name == name), None)


def suggest_preset(name: str) -> str | None:
    """The preset that ``name`` (another trainer's, a typo) probably means."""
    names = [preset.name for preset in presets()]
    endings = [known for known in names if known.endswith(f"_{name}")]
    return endings[0] if endings else closest(name, names)


def _read(path: Path) -> Preset:
    first_line = path.read_text(encoding="utf-8").partition("\n")[0]
    return Preset(path.stem, path, first_line.lstrip("# ").strip())


def _size(name: str) -> float:
    """Parameters in millions, from the name's last part; the debug model is the smallest."""
    last = name.rpartition("_")[2]
    factor = {"m": 1.0, "b": 1000.0}.get(last[-1:], 0.0)
    return factor * float(last[:-1]) if factor and last[:-1].isdigit() else 0.0
