"""Helpers of the config tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from titan_pretrain.config import World, load_config
from titan_pretrain.errors import ConfigError

Complain = Callable[..., list[str]]


@pytest.fixture(autouse=True)
def _in_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def complaints() -> Complain:
    """Load a config that must fail; the messages, each with its hint below it if there is one."""

    def load(
        config: str, sets: Sequence[str] = (), *, module: str | None = None, world: int | None = None
    ) -> list[str]:
        processes = World(world, f"--nproc {world}") if world else None
        with pytest.raises(ConfigError) as caught:
            load_config(config, module=module, overrides=sets, world=processes)
        return [
            f"{problem.message}\n{problem.hint}" if problem.hint else problem.message
            for problem in caught.value.problems
        ]

    return load
