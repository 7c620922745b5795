"""A stub CUDA driver under titan_kernels.launch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # stub_driver.py, with pytest's importlib mode

import stub_driver


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stub_driver.build(tmp_path_factory.mktemp("stub"))


@pytest.fixture
def stub(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[stub_driver.Stub]:
    """Devices 0 to 4: Volta, Turing, Ampere, Pascal, Xavier."""
    stub_driver.forget_caches()
    yield stub_driver.install(library, tmp_path, monkeypatch, "7.0,7.5,8.6,6.1,7.2")
    stub_driver.forget_caches()
