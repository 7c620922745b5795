from __future__ import annotations

import random

import pytest

from titan_pretrain.data.text import TextSource
from titan_pretrain.errors import DataError


def pieces_of(source):
    return [source[i] for i in range(len(source))]


def test_small_files_are_whole_documents(tmp_path):
    for i in range(900):
        (tmp_path / f"{i:03}.txt").write_text(f"file {i}\n" * 900)
    source = TextSource([str(tmp_path)])
    assert pieces_of(source) == [f"file {i}\n" * 900 for i in range(900)]


def test_one_big_file_is_cut_at_line_ends(tmp_path):
    rng = random.Random(0)
    text = "".join("word " * rng.randrange(40) + "\n" for _ in range(40_000))
    (tmp_path / "input.txt").write_text(text)
    source = TextSource([str(tmp_path / "input.txt")])
    pieces = pieces_of(source)
    assert "".join(pieces) == text
    assert len(pieces) >= 768
    assert all(piece.endswith("\n") for piece in pieces)
    assert max(map(len, pieces)) < 2 * len(text) / 768


@pytest.mark.parametrize(
    "text", ["é中🙂" * 20_000, "x" * 100_000, "\n" * 50_000, "é" * 4097 + "\n" + "🙂" * 4099]
)
def test_long_lines_are_cut_between_characters(text, tmp_path):
    (tmp_path / "input.txt").write_text(text, encoding="utf-8")
    source = TextSource([str(tmp_path)])
    assert len(source) > 5
    assert "".join(pieces_of(source)) == text


def test_byte_order_mark_and_line_ends(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfone\r\ntwo\n")
    assert pieces_of(TextSource([str(tmp_path)])) == ["one\r\ntwo\n"]


def test_mixed_sizes_with_empty_files(tmp_path):
    for name, size in (("a", 0), ("b", 10), ("c", 30_000), ("d", 0), ("e", 5)):
        (tmp_path / f"{name}.txt").write_text(name * size)
    pieces = pieces_of(TextSource([str(tmp_path)]))
    assert "".join(pieces) == "b" * 10 + "c" * 30_000 + "e" * 5
    assert pieces[0] == "b" * 10
    assert pieces[-1] == "eeeee"


def test_empty_files_only(tmp_path):
    (tmp_path / "a.txt").touch()
    with pytest.raises(DataError, match="every file is empty"):
        TextSource([str(tmp_path)])


@pytest.mark.parametrize(("before", "bad"), [(0, b"\xff\xfe"), (100, b"\xe9"), (9000, b"\xe4\xb8")])
def test_not_utf8_names_file_and_offset(before, bad, tmp_path):
    (tmp_path / "a.txt").write_text("fine\n")
    (tmp_path / "b.txt").write_bytes(b"x" * (before - 1) + b"\n" * (before > 0) + bad + b"rest\n" * 2000)
    with pytest.raises(
        DataError, match=rf"b.txt isn't UTF-8: byte 0x{bad[0]:02x} at offset {before}; .*iconv"
    ):
        TextSource([str(tmp_path)])


def test_large_datasets_are_checked_while_reading(tmp_path, monkeypatch, make_loader, take):
    monkeypatch.setattr("titan_pretrain.data.text._CHECK_UP_FRONT", 1000)
    (tmp_path / "a.txt").write_text("fine\n" * 1000)
    (tmp_path / "b.txt").write_bytes(b"fine\n" * 10 + b"\xff")
    source = TextSource([str(tmp_path)])
    for workers in (0, 2):
        loader = make_loader(source, workers=workers)
        with pytest.raises(DataError, match=r"b.txt isn't UTF-8: byte 0xff at offset 50"):
            take(loader, 2000)


def test_a_file_that_vanishes_or_shrinks(tmp_path):
    file = tmp_path / "a.txt"
    file.write_text("some text\n" * 2000)
    source = TextSource([str(tmp_path)])
    file.write_text("some text\n")
    with pytest.raises(DataError, match="became shorter"):
        pieces_of(source)
    file.unlink()
    with pytest.raises(DataError, match=r"a.txt can't be read: No such file"):
        source[0]
