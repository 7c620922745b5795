"""jsonl files: plain, gzip and Zstandard."""

from __future__ import annotations

import gzip
import json

import pyarrow as pa
import pytest

from titan_pretrain.data.jsonl import JsonlSource, JsonlStream, jsonl_source
from titan_pretrain.errors import DataError, UsageError


def write(file, data: bytes):
    if file.suffix == ".gz":
        data = gzip.compress(data[: len(data) // 2]) + gzip.compress(data[len(data) // 2 :])
    elif file.suffix == ".zst":
        half = len(data) // 2
        codec = pa.Codec("zstd")
        data = codec.compress(data[:half], asbytes=True) + codec.compress(data[half:], asbytes=True)
    file.write_bytes(data)
    return file


def open_source(file, key="text"):
    return jsonl_source("jsonl", [str(file)], key)


def texts_of(source):
    if isinstance(source, JsonlSource):
        return [source[i] for i in range(len(source))]
    return [text for part in range(source.num_parts) for text in source.open(part)]


LINES = [{"text": "one"}, {"text": "zwei ü中🙂", "more": 1}, {"text": ""}, {"text": None}, {"text": "a\nb"}]
DATA = b"\n".join(json.dumps(line, ensure_ascii=False).encode() for line in LINES)
TEXTS = ["one", "zwei ü中🙂", "", "", "a\nb"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_texts(name, end, tmp_path):
    source = open_source(write(tmp_path / name, b"\xef\xbb\xbf" + DATA + end))
    assert isinstance(source, JsonlSource if name == "a.jsonl" else JsonlStream)
    assert texts_of(source) == TEXTS


def test_blank_lines_count_as_empty_documents(tmp_path):
    source = open_source(write(tmp_path / "a.jsonl", b'\n{"text": "a"}\n\r\n  \n{"text": "b"}\n\n'))
    assert texts_of(source) == ["", "a", "", "", "b", ""]


def test_lone_surrogates_are_replaced(tmp_path, make_loader, take):
    write(tmp_path / "a.jsonl", rb'{"text": "a\ud800b \ud83d\ude42"}' + b"\n")
    source = open_source(tmp_path)
    assert source[0] == "a\ufffdb 🙂"
    take(make_loader(source), 5)


def test_several_files_and_kinds(tmp_path):
    write(tmp_path / "a.jsonl", DATA)
    write(tmp_path / "c.jsonl", DATA)
    assert texts_of(open_source(tmp_path)) == TEXTS * 2
    write(tmp_path / "b.jsonl.gz", DATA)
    (tmp_path / "empty.jsonl").touch()
    source = open_source(tmp_path)
    assert isinstance(source, JsonlStream)
    assert source.num_parts == 3
    assert texts_of(source) == TEXTS * 3


def test_compressed_under_a_plain_name(tmp_path):
    write(tmp_path / "a.jsonl.gz", DATA).rename(tmp_path / "a.jsonl")
    assert texts_of(open_source(tmp_path / "a.jsonl")) == TEXTS


def test_line_starts_across_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr("titan_pretrain.data.jsonl._SCAN_CHUNK", 7)
    assert texts_of(open_source(write(tmp_path / "a.jsonl", DATA))) == TEXTS


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_skip_equals_reading(name, tmp_path):
    write(tmp_path / name, DATA + b"\n\n" + DATA)
    stream = JsonlStream("jsonl", [tmp_path / name], "text")
    for count in range(13):
        reader = stream.open(0)
        reader.skip(count)
        assert list(reader) == [*TEXTS, "", *TEXTS][count:]


def broken_line(name, tmp_path, data, message, key="text"):
    file = write(tmp_path / name, data)
    with pytest.raises(DataError, match=message):
        texts_of(open_source(file, key))


NAMES = pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst"])


@NAMES
def test_bad_json_names_the_line(name, tmp_path):
    data = b'{"text": "a"}\n{"text": "b"\n{"text": "c"}\n'
    broken_line(name, tmp_path, data, rf"{name}:2 isn't JSON \(Expecting ',' delimiter\); each line")


@NAMES
def test_deep_json_is_no_crash(name, tmp_path):
    broken_line(name, tmp_path, b'{"text": "a"}\n' + b"[" * 100_000, rf"{name}:2 isn't JSON")


@NAMES
def test_wrong_key_offers_the_near_one(name, tmp_path):
    broken_line(
        name, tmp_path, DATA, rf"{name}:1 has no field data.text_key \(txet\); did you mean 'text'\?", "txet"
    )
    broken_line(name, tmp_path, DATA, r"text_key \(body\); it has text$", "body")


@NAMES
def test_key_without_text(name, tmp_path):
    broken_line(
        name, tmp_path, b'{"text": "a"}\n{"text": 5}', rf"{name}:2: data.text_key \(text\) holds .* int"
    )
    broken_line(name, tmp_path, b'{"text": "a"}\n[1]', rf"{name}:2 is a value of type list")


@NAMES
def test_not_utf8_names_file_and_offset(name, tmp_path):
    data = b'{"text": "a"}\n{"text": "caf\xe9"}\n'
    broken_line(name, tmp_path, data, rf"{name} isn't UTF-8: byte 0xe9 at offset 27")


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_truncated_and_corrupt_files(name, tmp_path):
    file = write(tmp_path / name, b"".join(b'{"text": "%d"}\n' % (i * 7919**3) for i in range(200_000)))
    whole = file.read_bytes()
    damages = [whole[:-9], whole[:4000]]
    if name.endswith(".gz"):  # zstd files usually carry no checksum: bad JSON is the first sign
        damages.append(whole[:3000] + bytes(range(200)) + whole[3200:])
    for data in damages:
        file.write_bytes(data)
        with pytest.raises(
            DataError, match=rf"{name} is damaged (gzip|zstd) data \(.*\); fetch the file again"
        ):
            texts_of(open_source(file))


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst"])
def test_not_compressed_at_all(name, tmp_path):
    (tmp_path / name).write_bytes(b"this is no compressed file\n" * 50)
    with pytest.raises(DataError, match=rf"{name} is damaged (gzip|zstd) data"):
        open_source(tmp_path / name)


def test_error_in_the_middle_of_a_run(tmp_path, make_loader, take):
    file = write(tmp_path / "a.jsonl.gz", b'{"text": "a"}\n' * 3000 + b"{\n")
    for workers in (0, 2):
        loader = make_loader(open_source(file), workers=workers)
        with pytest.raises(DataError, match=r"a.jsonl.gz:3001 isn't JSON"):
            take(loader, 3000)


def test_empty_files(tmp_path):
    (tmp_path / "a.jsonl").touch()
    with pytest.raises(DataError, match="every file is empty"):
        open_source(tmp_path)


def test_blank_lines_only(tmp_path, make_loader):
    loader = make_loader(open_source(write(tmp_path / "a.jsonl", b"\n\n \n")))
    with pytest.raises(DataError, match="every document is empty"):
        next(loader)


def test_missing(tmp_path):
    with pytest.raises(UsageError, match="doesn't exist"):
        open_source(tmp_path / "a.jsonl")
