from __future__ import annotations

import itertools
import pickle

import pytest

from titan_pretrain.config.sections import DataConfig
from titan_pretrain.data import IndexedSource, StreamSource, build_source
from titan_pretrain.errors import DataError, UsageError

CODE = """
import random
calls = []
def texts(): return ["a", "b", "c"]
def generator(): yield from ("a", {"text": "b"}, "c")
def seeded(seed): return [str(seed)]
def number(): return 5
def fails(): raise ValueError("no such corpus")
def fails_later():
    yield "a"
    raise KeyError("x")
class Late(list):
    def __getitem__(self, i): raise OSError("gone")
def fails_at_item(): return Late(["a"])
def wrong_item(): return ["a", 5]
def wrong_record(): return [{"body": "a"}]
once = iter(["a", "b"])
def exhausted(): return once
def nothing(): return iter(())
def exits(): raise SystemExit(0)
def endless():
    i = 0
    while True:
        yield f"document {i}"
        i += 1
not_a_function = 3
"""


@pytest.fixture
def user(tmp_path, monkeypatch):
    (tmp_path / "my_data.py").write_text(CODE)
    (tmp_path / "broken_data.py").write_text("import json\nx = 1 / 0\n")
    (tmp_path / "needs_more.py").write_text("import a_package_nobody_has\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*__import__("sys").path])
    yield lambda spec, **options: build_source(DataConfig(dataset=spec, **options), seed=7)
    for name in ("my_data", "broken_data", "needs_more"):
        __import__("sys").modules.pop(name, None)


def test_sequence(user):
    source = user("my_data:texts")
    assert isinstance(source, IndexedSource)
    assert [source[i] for i in range(len(source))] == ["a", "b", "c"]
    assert pickle.loads(pickle.dumps(source))[2] == "c"


def test_iterable_is_asked_for_anew(user):
    source = user("my_data:generator")
    assert isinstance(source, StreamSource)
    assert list(source.open(0)) == list(source.open(0)) == ["a", "b", "c"]


def test_seed_is_passed_on(user):
    assert user("my_data:seeded")[0] == "7"


def test_endless_iterable(user, make_loader, take):
    loader = make_loader(user("my_data:endless"), workers=2)
    assert len(set(take(loader, 50))) == 100


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("my_date:texts", r"data.dataset \(my_date:texts\): there is no module my_date in"),
        ("my_data:text", r"my_data has no function 'text'; did you mean 'texts'\?"),
        ("my_data:not_a_function", "has no function 'not_a_function'"),
    ],
)
def test_no_such_function(spec, message, user):
    with pytest.raises(UsageError, match=message):
        user(spec)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("my_data:fails", r"raised ValueError: no such corpus \(.*my_data.py:8\)"),
        ("my_data:number", "returned int; it must return a list or an iterable"),
        ("broken_data:x", r"raised ZeroDivisionError: .*broken_data.py:2"),
        ("needs_more:x", r"raised ModuleNotFoundError: No module named 'a_package_nobody_has'"),
        ("my_data:exits", "SystemExit"),
    ],
)
def test_code_that_fails(spec, message, user):
    with pytest.raises(DataError, match=message):
        user(spec)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("my_data:fails_later", r"raised KeyError: 'x' \(.*my_data.py:11\)"),
        ("my_data:fails_at_item", r"raised OSError: gone"),
        ("my_data:wrong_item", r"item 1 of data.dataset \(my_data:wrong_item\) is a value of type int"),
        ("my_data:wrong_record", r"item 0 .* has no field data.text_key \(text\); it has body"),
        ("my_data:exhausted", "must return a fresh iterable at each call"),
        ("my_data:nothing", "has no documents with text"),
    ],
)
def test_failures_while_reading(spec, message, workers, user, make_loader, take):
    loader = make_loader(user(spec), workers=workers)
    with pytest.raises(DataError, match=message) as caught:
        take(loader, 200)
    assert "\n" not in caught.value.message


def test_documents_under_another_key(user, monkeypatch, make_loader, take):
    source = user("my_data:wrong_record", text_key="body")
    assert list(itertools.islice(source.sample(), 5)) == ["a"]
