"""An editable install keeps the kernels it was built with; no gate may read those of older sources."""

from __future__ import annotations

from pathlib import Path

from kernel_build import sources

from titan_kernels import images
from titan_kernels import sources as installed

PACKAGE = Path(__file__).parents[2]


def test_the_installed_kernels_are_those_of_the_sources(include: Path) -> None:
    units = sources.find_units(PACKAGE / "src/titan_kernels/ops")
    expected = {unit: sources.fingerprint(path, (include,), {}) for unit, path in units.items()}
    found = {unit: images.fingerprint(unit) for unit in images.units()}
    stale = sorted(unit for unit in expected.keys() | found.keys() if expected.get(unit) != found.get(unit))
    assert not stale, f"kernels have changed, install again (pip install packages/titan-kernels): {stale}"


def test_the_package_and_its_build_have_one_fingerprint(include: Path) -> None:
    for unit, path in sources.find_units(PACKAGE / "src/titan_kernels/ops").items():
        assert installed.fingerprint(unit) == sources.fingerprint(path, (include,), {}), unit
