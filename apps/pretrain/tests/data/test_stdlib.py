from __future__ import annotations

import pytest

from titan_pretrain.data.stdlib import stdlib_source
from titan_pretrain.errors import DataError


def test_real_library():
    source = stdlib_source()
    documents = list(source.sample())
    assert len(source) > 300
    assert sum(map(len, documents)) > 3_000_000
    assert any("def dataclass(" in text for text in documents)
    assert source.identity() == stdlib_source().identity()


def test_selection(tmp_path):
    for name in (
        "b.py",
        "a.py",
        "pkg/c.py",
        "test/t.py",
        "site-packages/s.py",
        "_sysconfigdata_x.py",
        "n.txt",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"# {name}\n")
    (tmp_path / "latin1.py").write_bytes(b"# caf\xe9\n")
    source = stdlib_source(tmp_path)
    assert [source[i] for i in range(3)] == ["# a.py\n", "# b.py\n", "# pkg/c.py\n"]
    assert not any("latin1" in text or "caf" in text[:9] for text in source.sample())


def test_topics_are_documents(tmp_path):
    (tmp_path / "a.py").write_text("pass\n")
    assert any("**********" in text for text in stdlib_source(tmp_path).sample())


def test_no_sources(tmp_path, monkeypatch):
    monkeypatch.setattr("titan_pretrain.data.stdlib._topics", list)
    for folder in (tmp_path, tmp_path / "missing"):
        with pytest.raises(DataError, match="has no Python sources"):
            stdlib_source(folder)
