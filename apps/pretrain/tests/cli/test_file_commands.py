"""``tokenizer train`` and ``export``."""

# ruff: noqa: E501 - messages are quoted whole

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Path, Path]]:
    calls: list[tuple[Path, Path]] = []

    def export_hf(checkpoint: Path, out: Path) -> Path:
        calls.append((checkpoint, out))
        return checkpoint / "newest"

    module = types.ModuleType("titan_pretrain.export")
    module.export_hf = export_hf  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "titan_pretrain.export", module)
    return calls


def test_export_takes_a_checkpoint_a_run_or_the_newest_run(
    run: Run, exported: list[tuple[Path, Path]]
) -> None:
    result = run("export", "--to", "hf", "x", "out")
    assert (result.code, result.out, result.err) == (0, "out\n", "from x/newest\n")
    for name in ("runs/a-20260101-000000", "runs/b-20260102-000000"):
        folder = Path(name) / "checkpoints/step-00000001"
        folder.mkdir(parents=True)
        (folder / "manifest.json").touch()
    assert run("export", "out", "--to", "hf").code == 0
    assert exported == [(Path("x"), Path("out")), (Path("runs/b-20260102-000000"), Path("out"))]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "out --to hf",
            "error: no run in ./runs has a checkpoint\n  hint: name a checkpoint or a run folder before DIR\n",
        ),
        ("--to hf x full", "error: DIR (full) is not empty\n  hint: give a new folder\n"),
        ("--to hf x file", "error: DIR (file) is a file\n  hint: give a new folder\n"),
        ("--to hf a b c", "error: two folders at most, not 3\n  hint: `titan-pretrain export --help`\n"),
        (
            "out --to gguf",
            "error: invalid value for '--to': 'gguf' is not 'hf'.\n  hint: `titan-pretrain export --help`\n",
        ),
        ("out", None),
        ("--to hf", None),
    ],
)
def test_export_mistakes(run: Run, exported: list[Any], arguments: str, message: str | None) -> None:
    Path("full").mkdir()
    Path("full/x").touch()
    Path("file").touch()
    result = run("export", *arguments.split())
    assert (result.code, result.out, exported) == (2, "", [])
    if message is not None:
        assert result.err == message


def test_tokenizer_train(run: Run) -> None:
    Path("text").mkdir()
    Path("text/a.txt").write_text("the cat sat on the mat and the rat sat on the cat\n" * 20)
    data = ("--set", "data.dataset=text", "--set", "data.path=text")
    result = run("tokenizer", "train", "tok", "--vocab-size", "270", *data)
    assert (result.code, result.out) == (0, "tok\n"), result.err
    from titan_pretrain.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(Path("tok"))
    assert 259 < tokenizer.vocab_size <= 270
    assert tokenizer.decode(tokenizer.encode("the cat")) == "the cat"
    assert f"a tokenizer of {tokenizer.vocab_size} tokens" in result.err
    assert "warning" not in result.err
    large = run("tokenizer", "train", "large", "--vocab-size", "50000", *data)
    size = load_tokenizer(Path("large")).vocab_size
    assert f"warning: {size} tokens, not 50000: the text has no more pairs to merge\n" in large.err
    assert (
        run("tokenizer", "train", "tok").err == "error: DIR (tok) is not empty\n  hint: give a new folder\n"
    )


def test_tokenizer_train_mistakes(run: Run) -> None:
    assert run("tokenizer", "train", "tok", "--vocab-size", "5").code == 2
    result = run("tokenizer", "train", "tok", "--set", "data.dataset=txt")
    assert result.code == 2
    assert 'did you mean "text"?' in result.err
