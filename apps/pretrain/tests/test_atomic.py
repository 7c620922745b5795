"""A disk that fills up leaves what was there before, and nothing half-written."""

from __future__ import annotations

import os
import resource
from contextlib import contextmanager
from pathlib import Path

import pytest

from titan_pretrain.atomic import new_folder, write_file
from titan_pretrain.cli.app import main
from titan_pretrain.tokenizer import load_tokenizer


@contextmanager
def files_of_at_most(size):
    """Let writes beyond ``size`` fail, as on a full disk."""
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def test_a_file_is_written_and_replaced(tmp_path):
    for text in ("größer\n", "x\n"):
        write_file(tmp_path / "a", text)
        assert (tmp_path / "a").read_text(encoding="utf-8") == text
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_replaced_file_keeps_its_mode(tmp_path):
    write_file(tmp_path / "a", "secret")
    (tmp_path / "a").chmod(0o600)
    write_file(tmp_path / "a", "more")
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o600


def test_a_link_that_leads_nowhere_yet_gets_its_folder(tmp_path):
    (tmp_path / "link").symlink_to("elsewhere/out")
    with new_folder(tmp_path / "link") as folder:
        (folder / "a").write_text("a")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "elsewhere" / "out" / "a").read_text() == "a"


def test_a_failed_write_keeps_the_old_file(tmp_path):
    write_file(tmp_path / "a", "old")
    for name in ("a", "new"):
        with files_of_at_most(100), pytest.raises(OSError, match="File too large"):
            write_file(tmp_path / name, "x" * 200)
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_links_and_devices_stay_what_they_are(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_file(tmp_path / "link", "x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "x"
    reader, writer = os.pipe()
    write_file(Path(f"/dev/fd/{writer}"), "into the pipe")
    assert os.read(reader, 100) == b"into the pipe"
    os.close(reader)
    os.close(writer)


@pytest.mark.parametrize("exists", [False, True])
def test_a_folder_appears_whole(tmp_path, exists):
    out = tmp_path / "deep" / "out"
    if exists:
        out.mkdir(parents=True)
    inode = out.stat().st_ino if exists else None
    with new_folder(out) as folder:
        (folder / "a").write_text("a")
        (folder / "b").mkdir()
        assert not (out / "a").exists()
    assert sorted(path.name for path in out.iterdir()) == ["a", "b"]
    assert [path.name for path in out.parent.iterdir()] == ["out"]
    assert inode in (None, out.stat().st_ino), "a folder that was there is filled, not replaced"


@pytest.mark.parametrize("exists", [False, True])
def test_a_folder_that_fails_leaves_nothing(tmp_path, exists):
    out = tmp_path / "out"
    if exists:
        out.mkdir()

    def write():
        with new_folder(out) as folder:
            (folder / "a").write_text("a")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert not out.exists() or list(out.iterdir()) == []
    assert out.exists() == exists
    assert len(list(tmp_path.iterdir())) == int(exists)


@pytest.mark.parametrize("out", ["tok", "."])
def test_a_tokenizer_on_a_full_disk(tmp_path, monkeypatch, capsys, out):
    work, data = tmp_path / "work", tmp_path / "a.txt"
    work.mkdir()
    data.write_text("the cat sat on the mat and the rat sat on the cat\n" * 20)
    monkeypatch.chdir(work)
    command = ["tokenizer", "train", out, "--vocab-size", "270", "--set", "data.dataset=text"]
    command += ["--set", f"data.path={data}"]
    with files_of_at_most(5000):
        assert main(command) == 1
    assert f"error: DIR ({out}) can't be written: File too large" in capsys.readouterr().err
    assert list(work.iterdir()) == []
    assert main(command) == 0
    assert load_tokenizer(Path(out)).vocab_size > 260
