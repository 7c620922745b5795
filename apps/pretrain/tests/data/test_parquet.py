from __future__ import annotations

import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from titan_pretrain.data.parquet import ParquetSource
from titan_pretrain.errors import DataError


@pytest.fixture
def folder(tmp_path):
    for name, rows in (("a", 25), ("b", 0), ("c", 3)):
        table = pa.table(
            {"text": pa.array([f"{name}{i}" for i in range(rows)], pa.string()), "n": range(rows)}
        )
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=10)
    return tmp_path


def test_rows_of_all_groups_and_files(folder):
    source = ParquetSource([str(folder)], "text")
    expected = [f"a{i}" for i in range(25)] + [f"c{i}" for i in range(3)]
    assert [source[i] for i in range(len(source))] == expected
    assert list(source.blocks) == [10, 10, 5, 3]
    assert sorted(source.sample()) == sorted(expected)


def test_groups_stay_in_memory_up_to_a_limit(folder, monkeypatch):
    reads = []
    read = ParquetSource._read
    monkeypatch.setattr(ParquetSource, "_read", lambda self, block: reads.append(block) or read(self, block))
    source = ParquetSource([str(folder)], "text")
    for index in (0, 1, 15, 2, 16, 27, 3):
        source[index]
    assert reads == [0, 1, 3]
    monkeypatch.setattr("titan_pretrain.data.parquet._CACHE_BYTES", 1)
    source = ParquetSource([str(folder)], "text")
    for index in (15, 16, 0, 1, 15):
        source[index]
    assert reads[3:] == [1, 0, 1]


def test_pickle_leaves_the_data_out(folder):
    source = ParquetSource([str(folder)], "text")
    source[0]
    copy = pickle.loads(pickle.dumps(source))
    assert copy[20] == "a20"
    assert not pickle.loads(pickle.dumps(source))._cache


@pytest.mark.parametrize("column", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
def test_kinds_of_text_columns(column, tmp_path):
    pq.write_table(pa.table({"text": pa.array(["x", None, "z"]).cast(column)}), tmp_path / "a.parquet")
    source = ParquetSource([str(tmp_path)], "text")
    assert [source[i] for i in range(3)] == ["x", "", "z"]


def test_wrong_column(folder):
    with pytest.raises(
        DataError, match=r"a.parquet has no field data.text_key \(texts\); did you mean 'text'\?"
    ):
        ParquetSource([str(folder)], "texts")
    with pytest.raises(DataError, match=r"data.text_key \(n\) is a column of int64, not of text"):
        ParquetSource([str(folder)], "n")


def test_truncated_file(folder):
    file = folder / "a.parquet"
    file.write_bytes(file.read_bytes()[:-50])
    with pytest.raises(DataError, match=r"a.parquet isn't a complete parquet file"):
        ParquetSource([str(folder)], "text")


def test_damage_inside_is_found_when_read(folder, make_loader, take):
    file = folder / "a.parquet"
    data = bytearray(file.read_bytes())
    source = ParquetSource([str(folder)], "text")
    data[4:200] = b"\xff" * 196
    file.write_bytes(bytes(data))
    for workers in (0, 2):
        loader = make_loader(source, workers=workers)
        with pytest.raises(DataError, match=r"a.parquet isn't a complete parquet file"):
            take(loader, 200)


def test_no_rows(tmp_path):
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="the files have no rows"):
        ParquetSource([str(tmp_path)], "text")
