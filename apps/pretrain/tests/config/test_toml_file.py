"""TOML files: what can be wrong with the file itself, and the line of a key."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from titan_pretrain.config.toml_file import line_of, parse_value, read_toml

Complain = Callable[..., list[str]]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            b"[optim]\nlr = fast\n",
            'run.toml:2: not valid TOML: invalid value (column 6)\ntexts need quotes: `lr = "fast"`',
        ),
        (
            b"[compile]\nenable = True",
            "run.toml:2: not valid TOML: invalid value (column 10)\nwrite `enable = true`",
        ),
        (
            b"[optim]\nmax_grad_norm = None",
            'run.toml:2: not valid TOML: invalid value (column 17)\nwrite `max_grad_norm = "none"`',
        ),
        (b"a = 1\n\na = 2\n", "run.toml:3: not valid TOML: cannot overwrite a value (column 6)"),
        (
            b"# YAML\noptim:\n  lr: 1\n",
            "run.toml:2: not valid TOML: expected '=' after a key in a key/value pair (column 6)\n"
            'TOML writes `key = value`, and sections as "[section]"',
        ),
        (
            b"[optim\nlr = 1",
            "run.toml:1: not valid TOML: expected ']' at the end of a table declaration (column 7)",
        ),
        (b"x = [1,\n2\n\n", "run.toml:2: not valid TOML: unclosed array"),
        (b'[run]\nname = "caf\xe9"', "run.toml:2: byte 0xe9 is not UTF-8 text\nsave the file as UTF-8"),
        (
            "[run]".encode("utf-16"),
            "run.toml:1: is UTF-16 text; a config must be UTF-8\nsave the file as UTF-8",
        ),
        (b"\x7fELF\x02\x01\x01\x00", "run.toml:1: not valid TOML: invalid statement (column 1)"),
        (b"x = " + b"9" * 5000, None),
        (b"x = " + b"[" * 100_000, None),
    ],
    ids=lambda value: str(value)[:20],
)
def test_broken_file(complaints: Complain, data: bytes, message: str | None) -> None:
    Path("run.toml").write_bytes(data)
    (found,) = complaints("run.toml")
    assert found == message if message else found.startswith("run.toml")


def test_the_command_line_is_checked_even_when_the_file_is_broken(complaints: Complain) -> None:
    Path("run.toml").write_text("[")
    messages = complaints("run.toml", ["optim.lrr=1", "model.n_heads=7"])
    assert [message.partition(" ")[0] for message in messages] == ["run.toml:1:", "--set"]


def test_a_byte_order_mark_is_skipped() -> None:
    Path("run.toml").write_bytes(b"\xef\xbb\xbf[optim]\r\nlr = 1\r\n")
    assert read_toml(Path("run.toml")).data == {"optim": {"lr": 1}}


def test_missing_file_with_a_neighbour(complaints: Complain) -> None:
    Path("my_run.toml").write_text("")
    assert complaints("my_rum.toml") == ["my_rum.toml: no such file\ndid you mean my_run.toml?"]
    assert complaints("other/x.toml") == [
        "other/x.toml: no such file\n`titan-pretrain presets` lists the presets"
    ]


def test_folder(complaints: Complain) -> None:
    Path("runs/a").mkdir(parents=True)
    hint = "give a TOML file or the name of a preset"
    assert complaints("runs/a") == [f"runs/a: is a folder, not a config file\n{hint}"]
    Path("runs/a/config.toml").write_text("")
    assert complaints("runs/a") == ["runs/a: is a folder, not a config file\nuse runs/a/config.toml"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_unreadable_file(complaints: Complain) -> None:
    Path("run.toml").touch(mode=0)
    assert complaints("run.toml") == ["run.toml: can't be read: Permission denied"]


def test_file_that_fails_to_be_read(complaints: Complain, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    Path("run.toml").touch()
    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert complaints("run.toml") == ["run.toml: can't be read: Permission denied"]


@pytest.mark.parametrize("name", ["a.yaml", "a.yml", "a.json"])
def test_other_languages(complaints: Complain, name: str) -> None:
    Path(name).write_text("{}")
    (message,) = complaints(name)
    assert message.startswith(f"{name}: configs are TOML, not ")


TEXT = '''# comment with key = 1
title = """
[optim]
lr = 3
"""
model.dim = 8
[model.rope_scaling]
factor = 8.0
[data]
path = [  # lr = 1
  "a",
  "b",
]
"dataset" = 'text'
[optim]
lr = 1
loss = { a = 1, lr = 2 }
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("title", 2),
        ("model", 6),
        ("model.dim", 6),
        ("model.rope_scaling", 7),
        ("model.rope_scaling.factor", 8),
        ("data", 9),
        ("data.path", 10),
        ("data.path.0", 10),
        ("data.dataset", 14),
        ("optim", 15),
        ("optim.lr", 16),
        ("optim.loss.lr", 17),
        ("optim.none", 15),
        ("absent", None),
    ],
)
def test_line_of(path: str, line: int | None) -> None:
    assert line_of(TEXT, tuple(path.split("."))) == line


@pytest.mark.parametrize("text", ["1\nb = 2", "", "1 2", "[1", "a", "1 # c\nd=1", "[" * 100_000])
def test_parse_value_takes_one_value(text: str) -> None:
    with pytest.raises(ValueError):
        parse_value(text)
