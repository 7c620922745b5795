"""The set-up's bookkeeping: what counts as complete, and what an interrupted call leaves behind."""

import json
import sys
from pathlib import Path

import choose_torch
import pytest
import setup_venv


@pytest.fixture
def checkout(tmp_path):
    (tmp_path / "constraints.txt").write_text("torch==2.13.0\n")
    for package in setup_venv.PACKAGES:
        (tmp_path / package).mkdir(parents=True)
        (tmp_path / package / "pyproject.toml").write_text("[project]\n")
    return tmp_path


def test_the_fingerprint_changes_with_everything_it_covers(checkout):
    seen = {setup_venv.fingerprint(checkout, "train", "2.13.0+cpu")}
    seen.add(setup_venv.fingerprint(checkout, "train", "2.14.1"))
    seen.add(setup_venv.fingerprint(checkout, "tests", "2.13.0+cpu"))
    (checkout / "apps/pretrain/pyproject.toml").write_text("[project]\nname = 'x'\n")
    seen.add(setup_venv.fingerprint(checkout, "train", "2.13.0+cpu"))
    (checkout / "constraints.txt").write_text("torch==2.14.1\n")
    seen.add(setup_venv.fingerprint(checkout, "train", "2.13.0+cpu"))
    for kernel in (
        "src/titan_kernels/ops/some_op/kernel.cu",
        "src/titan_kernels/include/some.cuh",
        "cpp/a.cpp",
    ):
        (checkout / "packages/titan-kernels" / kernel).parent.mkdir(parents=True, exist_ok=True)
        (checkout / "packages/titan-kernels" / kernel).write_text("int x;")
        seen.add(setup_venv.fingerprint(checkout, "train", "2.13.0+cpu"))
    assert len(seen) == 8
    assert setup_venv.fingerprint(checkout, "train", "2.13.0+cpu") in seen


def test_half_installed_packages_are_removed_and_whole_ones_stay(tmp_path):
    for name, files in {"torch-2.13.0": ["METADATA"], "numpy-2.4.6": ["METADATA", "RECORD"]}.items():
        folder = tmp_path / f"{name}.dist-info"
        folder.mkdir()
        for file in files:
            (folder / file).write_text("")
    (tmp_path / "~umpy").mkdir()
    assert setup_venv.remove_unfinished(tmp_path) == ["torch-2.13.0"]
    assert [path.name for path in tmp_path.iterdir()] == ["numpy-2.4.6.dist-info"]


def test_constraints_follow_the_torch_that_is_there():
    text = "# pinned\ntorch==2.13.0\nruff==0.17.6\n"
    assert setup_venv.constraints_for(text, "2.14.1+cu126") == "# pinned\nruff==0.17.6\ntorch==2.14.1+cu126\n"


@pytest.fixture
def environment(tmp_path, monkeypatch):
    """A venv in which every pip call is recorded instead of made."""
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(setup_venv.sysconfig, "get_path", lambda _: str(tmp_path))
    monkeypatch.setattr(setup_venv, "pip", lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(setup_venv, "_torch_version", lambda: "2.13.0+cpu")
    monkeypatch.setattr(
        choose_torch, "gather", lambda: choose_torch.Facts(installed=choose_torch.Torch("2.13.0+cpu", None))
    )
    monkeypatch.setattr(setup_venv, "_SMOKE", "pass")
    return calls, tmp_path


def test_a_second_call_starts_no_pip(environment):
    calls, _ = environment
    setup_venv.run("train")
    assert len(calls) == 1
    assert "--editable" in calls[0]
    setup_venv.run("train")
    assert len(calls) == 1


def test_an_installed_torch_is_not_installed_again_and_holds_the_others_to_its_version(environment):
    calls, folder = environment
    setup_venv.run("train")
    assert not any(argument.startswith("torch==") for call in calls for argument in call)
    assert "torch==2.13.0+cpu" in (folder / "titan-constraints.txt").read_text()


def test_a_failed_call_leaves_no_stamp(environment, monkeypatch):
    _, folder = environment
    setup_venv.run("train")
    stamp = folder / "titan-setup-train.json"
    stamp.write_text(json.dumps({"fingerprint": "of an older checkout"}))

    def interrupted(*_: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(setup_venv, "pip", interrupted)
    with pytest.raises(KeyboardInterrupt):
        setup_venv.run("train")
    assert not stamp.exists()


def test_an_environment_that_can_not_import_its_packages_gets_no_stamp(environment, monkeypatch, capfd):
    _, folder = environment
    monkeypatch.setattr(setup_venv, "_SMOKE", "import a_module_that_is_missing")
    with pytest.raises(setup_venv.SetupError, match="delete it and call again"):
        setup_venv.run("train")
    assert not (folder / "titan-setup-train.json").exists()
    assert "a_module_that_is_missing" in capfd.readouterr().err


def test_a_wrong_torch_stops_everything_before_pip(environment, monkeypatch):
    calls, _ = environment
    wrong = choose_torch.Facts(installed=choose_torch.Torch("2.9.1", None))
    monkeypatch.setattr(choose_torch, "gather", lambda: wrong)
    monkeypatch.setattr(sys, "argv", ["setup_venv.py", "train"])
    assert setup_venv.main() == 2
    assert calls == []


def test_unknown_purposes_are_usage_errors(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["setup_venv.py", "fly"])
    assert setup_venv.main() == 2
    assert "usage" in capsys.readouterr().err


def test_the_packages_are_those_of_the_repository():
    found = {
        path.parent
        for folder in ("packages", "apps")
        for path in (setup_venv.ROOT / folder).glob("*/pyproject.toml")
    }
    assert {setup_venv.ROOT / Path(package) for package in setup_venv.PACKAGES} == found
