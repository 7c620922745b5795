"""Machine code and sources: whether they belong together."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from titan_kernels import images, sources
from titan_kernels.emulator import include_directories, unit_source


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the headers and of a unit, which stand in for those of the package."""
    folders = include_directories()
    shutil.copytree(folders[0], tmp_path / "include")
    shutil.copytree(unit_source("softmax").parent, tmp_path / "softmax")
    monkeypatch.setattr(sources, "include_directories", lambda: (tmp_path / "include", folders[1]))
    monkeypatch.setattr(sources, "unit_source", lambda unit: tmp_path / unit / "kernel.cu")
    return tmp_path


@pytest.mark.parametrize("file", ["softmax/kernel.cu", "softmax/scores.cuh", "include/titan/row.cuh"])
def test_a_change_of_any_file_of_a_unit_is_seen(
    copy: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = sources.fingerprint("softmax")
    monkeypatch.setattr(images, "fingerprint", lambda _unit: built)
    assert not sources.changed("softmax")
    path = copy / file
    path.write_text(path.read_text() + "\n")
    assert sources.changed("softmax")


def test_a_unit_without_images_has_changed() -> None:
    assert sources.changed("no such unit")
