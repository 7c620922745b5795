"""A new room works as it is made."""

import importlib.util
import os
import shutil
import subprocess
import sys

import new_kernel
import pytest

# An editable install imports the checkout whatever PYTHONPATH says; here the copy is meant.
PYTEST = """
import sys
sys.meta_path[:] = [each for each in sys.meta_path if not type(each).__name__.startswith("ScikitBuild")]
import pytest
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.fixture
def package(tmp_path):
    """A copy of the package, for the room to be made in."""
    copy = tmp_path / "packages/titan-kernels"
    ignored = shutil.ignore_patterns("__pycache__", "build")
    shutil.copytree(new_kernel.PACKAGE, copy, ignore=ignored)
    return copy


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("rms_norm", "exists already"),
        ("My-Op", "lower-case"),
        ("class", "lower-case"),
        ("new_op", "example's own"),
    ],
)
def test_bad_names(name, words):
    assert words in new_kernel.problem(name)


@pytest.mark.skipif(
    importlib.util.find_spec("ruff") is None, reason="needs ruff, which `nox -s new-kernel` has"
)
@pytest.mark.parametrize("name", ["ab", "grouped_query_attention_with_a_sliding_window"])
def test_new_room_needs_no_tidying(package, name):
    shutil.copy(new_kernel.PACKAGE.parents[1] / "pyproject.toml", package.parents[1])
    assert new_kernel.tidy(new_kernel.make(name, package))
    for command in ("check", "format --check"):
        ruff = [sys.executable, "-m", "ruff", *command.split(), "--no-cache", str(package)]
        run = subprocess.run(ruff, capture_output=True, text=True)
        assert run.returncode == 0, run.stdout


@pytest.mark.slow
def test_new_room_passes_the_tests_of_every_operator(package):
    assert new_kernel.problem("halved", package) is None
    new_kernel.make("halved", package)
    command = [sys.executable, "-c", PYTEST, "-q", "--import-mode=importlib", "-p", "no:cacheprovider"]
    tests = ["tests/ops/test_halved.py", "tests/ops/test_every_op.py", "-k", "halved and not compiled"]
    environment = {**os.environ, "PYTHONPATH": str(package / "src")}
    run = subprocess.run([*command, *tests], cwd=package, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    assert " passed" in run.stdout
