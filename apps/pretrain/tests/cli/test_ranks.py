"""What several ranks say at once."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from titan_pretrain.cli import ranks
from titan_pretrain.cli.ranks import say_once


def _env(folder: Path | None, rank: int, local_rank: int | None = None) -> dict[str, str]:
    local = rank if local_rank is None else local_rank
    env = {"RANK": str(rank), "LOCAL_RANK": str(local), "WORLD_SIZE": "8", "TORCHELASTIC_RUN_ID": "x"}
    if folder is not None:
        env["TORCHELASTIC_ERROR_FILE"] = str(folder / str(local) / "error.json")
    return env


def test_the_same_words_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In whatever order the ranks fail."""
    others = [threading.Thread(target=say_once, args=("no", None, _env(tmp_path, rank))) for rank in (1, 2)]
    for thread in others:
        thread.start()
    time.sleep(0.1)
    say_once("no", env=_env(tmp_path, 0))
    for thread in others:
        thread.join()
    say_once("no", env=_env(tmp_path, 3))
    assert capsys.readouterr().err == "no"


def test_other_words_are_said_with_the_rank(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    say_once("a\n", env=_env(tmp_path, 0))
    say_once("b\n", env=_env(tmp_path, 1))
    assert capsys.readouterr().err == "a\n[rank 1] b\n"


def test_the_same_meaning_in_other_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    say_once("bug, see file 0\n", "bug", _env(tmp_path, 0))
    say_once("bug, see file 1\n", "bug", _env(tmp_path, 1))
    assert capsys.readouterr().err == "bug, see file 0\n"


def test_a_silent_first_rank_is_not_waited_for_long(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "PATIENCE_S", 0.1)
    say_once("lost\n", env=_env(tmp_path, 1))
    assert capsys.readouterr().err == "[rank 1] lost\n"


def test_the_first_rank_of_another_node_speaks_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    say_once("no\n", env=_env(tmp_path, 4, local_rank=0))
    say_once("no\n", env=_env(tmp_path, 5, local_rank=1))
    assert capsys.readouterr().err == "[rank 4] no\n"


@pytest.mark.parametrize("folder", [None, Path("/nowhere")])
def test_without_the_agents_folder_everyone_speaks(
    folder: Path | None, capsys: pytest.CaptureFixture[str]
) -> None:
    for rank in (0, 1):
        say_once("no\n", env=_env(folder, rank))
    assert capsys.readouterr().err == "no\n[rank 1] no\n"


def test_a_single_process_just_speaks(capsys: pytest.CaptureFixture[str]) -> None:
    say_once("no\n", env={})
    assert capsys.readouterr().err == "no\n"


def test_a_folder_that_cannot_be_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise PermissionError

    monkeypatch.setattr(Path, "write_text", refuse)
    say_once("no\n", env=_env(tmp_path, 0))
    assert capsys.readouterr().err == "no\n"
