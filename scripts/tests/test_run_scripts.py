"""run_train.sh and run_tests.sh in a checkout of stand-ins: arguments, folders, interpreters."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ECHO = "import json, os, sys; print(json.dumps([os.getcwd(), *sys.argv[1:]]))\n"


@pytest.fixture
def checkout(tmp_path):
    """A copy of the scripts, in a path with spaces, whose set-up and trainer only report."""
    root = tmp_path / "a checkout"
    (root / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts/common.sh", root / "scripts")
    for name in ("run_train.sh", "run_tests.sh"):
        shutil.copy(ROOT / name, root)
    (root / "scripts/setup_venv.py").write_text("")
    return root


@pytest.fixture
def ready(checkout):
    """The same with a virtual environment that has stand-ins for titan_pretrain and nox."""
    venv.create(checkout / ".venv", with_pip=False, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(checkout / ".venv")}))
    for name in ("titan_pretrain", "nox"):
        (site / name).mkdir(parents=True)
        (site / name / "__main__.py").write_text(ECHO)
    return checkout


def call(script, *arguments, cwd, **environment):
    clean = {name: value for name, value in os.environ.items() if name not in {"CONFIG", "MODULE", "NGPU"}}
    return subprocess.run(
        [script, *arguments],
        cwd=cwd,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_default_is_the_debug_preset(ready, tmp_path):
    done = call(ready / "run_train.sh", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [str(tmp_path), "--config", "llama3_debug"]


def test_environment_and_arguments_are_passed_on(ready, tmp_path):
    extra = ["--set", 'data.path=["a folder/*.txt"]']
    done = call(ready / "run_train.sh", *extra, cwd=tmp_path, CONFIG="my run.toml", MODULE="llama3", NGPU="2")
    expected = ["--config", "my run.toml", "--module", "llama3", "--nproc", "2", *extra]
    assert json.loads(done.stdout)[1:] == expected


def test_run_tests_uses_the_noxfile_of_the_checkout(ready, tmp_path):
    done = call(ready / "run_tests.sh", "-s", "lint", cwd=tmp_path)
    assert json.loads(done.stdout)[1:] == ["-f", str(ready / "noxfile.py"), "-s", "lint"]


def test_a_failing_set_up_starts_nothing_and_keeps_its_exit_code(ready, tmp_path):
    (ready / "scripts/setup_venv.py").write_text("raise SystemExit(2)")
    done = call(ready / "run_train.sh", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")


def test_the_first_call_makes_the_environment_where_it_is_asked_to(checkout, tmp_path):
    (checkout / "scripts/setup_venv.py").write_text("import sys; print(sys.prefix, sys.argv[1]); sys.exit(1)")
    target = tmp_path / "elsewhere"
    done = call(checkout / "run_train.sh", cwd=tmp_path, TITAN_VENV=str(target), PYTHON=sys.executable)
    assert done.stdout.splitlines()[-1] == f"{target} train"
    assert not (checkout / ".venv").exists()


def fake_python(folder, name, *, version_ok, venv_ok):
    """An executable that answers the two questions the scripts ask of a Python."""
    folder.mkdir(exist_ok=True)
    script = folder / name
    answers = f"*version_info*) exit {int(not version_ok)};; *ensurepip*) exit {int(not venv_ok)};;"
    script.write_text(f'#!/bin/bash\ncase "$2" in {answers} esac\n')
    script.chmod(0o755)


@pytest.mark.parametrize(
    ("pythons", "words"),
    [
        ({}, "no Python 3.10 to 3.14 found"),
        ({"python3": (False, True)}, "no Python 3.10 to 3.14 found"),
        ({"python3": (True, False)}, "python3-venv"),
    ],
    ids=["none", "too-old", "no-venv-module"],
)
def test_a_missing_python_is_named_in_one_line(checkout, tmp_path, pythons, words):
    tools = tmp_path / "bin"
    tools.mkdir()
    for tool in ("bash", "dirname", "env"):
        (tools / tool).symlink_to(shutil.which(tool))
    for name, (version_ok, venv_ok) in pythons.items():
        fake_python(tools, name, version_ok=version_ok, venv_ok=venv_ok)
    done = call(checkout / "run_train.sh", cwd=tmp_path, PATH=str(tools), PYTHON="")
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.fixture
def own_torch(checkout, tmp_path):
    """A user's own environment: a CPU build of torch inside, no stamp; beside it a Titan V."""
    shutil.copy(ROOT / "scripts/setup_venv.py", checkout / "scripts")
    shutil.copy(ROOT / "scripts/choose_torch.py", checkout / "scripts")
    shutil.copy(ROOT / "constraints.txt", checkout)
    for project in ROOT.glob("*/*/pyproject.toml"):
        copy = checkout / project.relative_to(ROOT)
        copy.parent.mkdir(parents=True)
        shutil.copy(project, copy)
    venv.create(checkout / ".venv", with_pip=False, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(checkout / ".venv")}))
    for name, text in {
        "torch/__init__.py": "",
        "torch/version.py": "__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n",
        "torch-2.13.0+cpu.dist-info/METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0+cpu\n",
        "torch-2.13.0+cpu.dist-info/RECORD": "",
    }.items():
        (site / name).parent.mkdir(exist_ok=True)
        (site / name).write_text(text)
    tools = tmp_path / "tools"
    tools.mkdir()
    smi = tools / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho '580.95.05, 7.0, NVIDIA TITAN V'\n")
    smi.chmod(0o755)
    return checkout, site, f"{tools}:{os.environ['PATH']}"


def test_a_torch_that_can_not_use_the_card_is_left_alone_and_the_remedy_named(own_torch, tmp_path):
    checkout, site, path = own_torch
    before = sorted(file.name for file in site.iterdir())
    done = call(checkout / "run_train.sh", cwd=tmp_path, PATH=path)
    assert done.returncode == 2
    assert "installed torch (2.13.0+cpu) is a CPU build and can't use NVIDIA TITAN V" in done.stderr
    python = checkout / ".venv/bin/python"
    assert f"'{python}' -m pip install --force-reinstall torch==2.13.0+cu126 --index-url" in done.stderr
    assert sorted(file.name for file in site.iterdir()) == before
