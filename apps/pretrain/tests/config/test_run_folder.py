"""Run folders: unique, found again, and honest about a disk that can't take them."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import pytest

from titan_pretrain.config import TrainConfig
from titan_pretrain.config.run_folder import (
    discard_unstarted,
    latest_run_folder,
    new_run_folder,
    newest_checkpoint,
    newest_run,
)
from titan_pretrain.config.sections import RunConfig
from titan_pretrain.errors import PretrainError, UsageError

CONFIG = TrainConfig(run=RunConfig(dir="all/runs", name="a.b"))


def _checkpoint(run: str, step: int, *, complete: bool = True) -> Path:
    folder = Path("all/runs") / run / "checkpoints" / f"step-{step:08d}"
    folder.mkdir(parents=True)
    if complete:
        (folder / "manifest.json").touch()
    return folder


def test_name_and_emptiness() -> None:
    folder = new_run_folder(CONFIG)
    assert folder.parent == Path("all/runs")
    assert re.fullmatch(r"a\.b-\d{8}-\d{6}", folder.name)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("file", "text", "stays"),
    [
        ("tokenizer/tokenizer.json", "{}", False),
        ("checkpoints/.lock", "", False),
        ("checkpoints/.step-00000001.writing/manifest.json", "{}", False),
        ("metrics.jsonl", "", False),
        ("metrics.jsonl", '{"step": 1}\n', True),
        ("checkpoints/step-00000000/manifest.json", "{}", True),
        ("traceback-rank1.txt", "Traceback", True),
    ],
)
def test_only_a_run_that_did_nothing_is_discarded(file: str, text: str, stays: bool) -> None:
    folder = new_run_folder(CONFIG)
    (folder / "config.toml").touch()
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text(text)
    discard_unstarted(folder)
    assert folder.exists() == stays
    discard_unstarted(folder)  # does nothing to a folder that is gone


def test_many_at_once_are_different() -> None:
    with ThreadPoolExecutor(8) as pool:
        folders = list(pool.map(lambda _: new_run_folder(CONFIG), range(40)))
    assert len(set(folders)) == 40
    assert all(folder.is_dir() for folder in folders)


def test_a_file_in_the_way() -> None:
    Path("all").touch()
    with pytest.raises(PretrainError, match=r"run.dir \(all/runs\): .*Not a directory") as caught:
        new_run_folder(CONFIG)
    assert not isinstance(caught.value, UsageError)
    assert caught.value.exit_code == 1


def test_full_disk_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, mode: str = "r") -> BinaryIO:
        path.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(PretrainError, match="No space left on device"):
        new_run_folder(CONFIG)
    assert list(Path("all/runs").iterdir()) == []


def test_latest_has_a_complete_checkpoint_and_the_name() -> None:
    assert latest_run_folder(CONFIG) is None
    _checkpoint("a.b-20260101-000000", 10)
    _checkpoint("a.b-20260101-000000-10", 10)
    _checkpoint("a.b-20260101-000000-9", 10)
    _checkpoint("a.b-20270101-000000", 10, complete=False)
    _checkpoint("a.b-c-20280101-000000", 10)
    _checkpoint("axb-20280101-000000", 10)
    (Path("all/runs") / "a.b-20290101-000000").touch()
    assert latest_run_folder(CONFIG) == Path("all/runs/a.b-20260101-000000-10")


def test_newest_run_of_any_name_and_its_newest_checkpoint() -> None:
    _checkpoint("x-20260101-000000", 5)
    _checkpoint("y-20260102-000000", 90_000_000)
    last = _checkpoint("y-20260102-000000", 100_000_000)
    _checkpoint("y-20260102-000000", 200_000_000, complete=False)
    run = newest_run(Path("all/runs"))
    assert run == Path("all/runs/y-20260102-000000")
    assert newest_checkpoint(run) == last
    assert newest_checkpoint(Path("nowhere")) is None
