"""A dataset that was changed between two runs is noticed; one that was moved or copied is the same."""

from __future__ import annotations

import os
import shutil

import pytest

from titan_pretrain.data import identity
from titan_pretrain.data.identity import files_identity
from titan_pretrain.errors import DataError

BLOCK = 4096


@pytest.fixture
def large(tmp_path, monkeypatch):
    """A file beyond what is hashed whole: 100 blocks."""
    monkeypatch.setattr(identity, "_READ_WHOLE", 1000)
    (tmp_path / "a.txt").write_bytes(os.urandom(100 * BLOCK - 7))
    return tmp_path / "a.txt"


def edit(file, offset):
    """Change one byte, and neither size nor time."""
    before = file.stat()
    with file.open("r+b") as handle:
        handle.seek(offset)
        byte = handle.read(1)[0]
        handle.seek(offset)
        handle.write(bytes([byte ^ 1]))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_copy_in_another_folder_is_the_same(large, tmp_path_factory):
    small = large.with_name("b.txt")
    small.write_text("b")
    other = tmp_path_factory.mktemp("other")
    copies = [shutil.copyfile(file, other / file.name) for file in (large, small)]
    assert files_identity("text", copies) == files_identity("text", [large, small])


def test_names_sizes_and_order_count(tmp_path):
    files = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for file in files:
        file.write_text("same")
    before = files_identity("text", files)
    assert files_identity("text", [files[0], files[1].rename(tmp_path / "c.txt")]) != before
    (tmp_path / "b.txt").write_text("longer")
    assert files_identity("text", files) != before


@pytest.mark.parametrize("offset", [0, 77, 4_999, 9_999])
def test_any_edit_of_small_files_is_noticed(tmp_path, offset):
    file = tmp_path / "a.txt"
    file.write_bytes(bytes(10_000))
    before = files_identity("text", [file])
    edit(file, offset)
    assert files_identity("text", [file]) != before


@pytest.mark.parametrize("offset", [0, BLOCK - 1, 33 * BLOCK, 99 * BLOCK, 100 * BLOCK - 8])
def test_edits_of_sampled_blocks_are_noticed(large, offset):
    before = files_identity("text", [large])
    edit(large, offset)
    assert files_identity("text", [large]) != before


def test_an_insertion_of_equal_size_is_noticed(large):
    before = files_identity("text", [large])
    data = large.read_bytes()
    large.write_bytes(data[:BLOCK] + b"x" + data[BLOCK:-1])
    assert files_identity("text", [large]) != before


def test_the_work_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(identity, "_READ_WHOLE", 1000)
    monkeypatch.setattr(identity, "_BLOCKS_IN_ALL", 40)
    hashed = []
    real = identity._add_content

    def count(digest, file, size, blocks):
        hashed.append(blocks)
        real(digest, file, size, blocks)

    monkeypatch.setattr(identity, "_add_content", count)
    files = [tmp_path / f"{i:03d}" for i in range(90)]
    for file in files:
        file.write_bytes(bytes(5 * BLOCK))
    for number, blocks in ((1, 16), (2, 16), (5, 8), (20, 2), (90, 2)):
        hashed.clear()
        files_identity("text", files[:number])
        assert hashed == [blocks] * min(number, 20)
    before = files_identity("text", files)
    edit(files[-1], 5 * BLOCK - 1)
    assert files_identity("text", files) != before, "the last file is always among them"


def test_a_file_that_is_gone(tmp_path):
    with pytest.raises(DataError, match=r"gone\.txt can't be read: No such file"):
        files_identity("text", [tmp_path / "gone.txt"])
