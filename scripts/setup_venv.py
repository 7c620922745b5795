"""Brings the virtual environment whose interpreter runs this up to date; standard library only.

``setup_venv.py train`` installs torch and the six packages, ``setup_venv.py tests`` installs nox.

A stamp in the environment holds a fingerprint of everything the installation depends on.  It is
written last and only after the packages could be imported, so an interrupted or failed call never
looks complete, and a call that finds it up to date starts no pip and needs no network.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import choose_torch

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "packages/titan-kernels",
    "packages/titan-alloc",
    "packages/titan-core",
    "packages/titan-parallel",
    "apps/pretrain",
    "apps/bench",
)
_SMOKE = "import numpy, pyarrow, pydantic, titan_bench, titan_kernels._driver, titan_pretrain, torch"
_OLDEST_PIP = 22  # the first that installs editable packages by PEP 660 reliably
_PIP_QUIET = () if sys.stdout.isatty() else ("--quiet", "--progress-bar", "off")


class SetupError(Exception):
    """The environment can't be brought up to date; the message says what to do."""


def fingerprint(root: Path, purpose: str, torch_version: str | None) -> str:
    """Hash of all that the installation depends on.

    Args:
        root: The checkout; its path counts, since editable packages point into it.
        purpose: ``train`` or ``tests``.
        torch_version: The installed torch, so that an exchange by hand is noticed.
    """
    inputs = [root / "constraints.txt"]
    facts: tuple[object, ...] = (str(root), purpose, sys.version_info[:3])
    if purpose == "train":
        inputs += [root / package / "pyproject.toml" for package in PACKAGES]
        inputs += compiled_sources(root / "packages/titan-kernels")
        facts = (*facts, torch_version)
    digest = hashlib.sha256(repr(facts).encode())
    for path in (*inputs, Path(__file__), Path(choose_torch.__file__)):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def compiled_sources(package: Path) -> list[Path]:
    """The files that become machine code while the package is installed, and what compiles them."""
    patterns = ("CMakeLists.txt", "cpp/*", "build_tools/**/*.py", "src/**/*.cu", "src/**/*.cuh")
    return sorted(path for pattern in patterns for path in package.glob(pattern) if path.is_file())


def remove_unfinished(site: Path) -> list[str]:
    """Delete what an interrupted pip left half installed, and name it.

    pip writes a package's RECORD last.  A ``.dist-info`` folder without one stands for a package
    with missing files, which pip would take for installed and could not even uninstall.
    """
    unfinished = [path for path in site.glob("*.dist-info") if not (path / "RECORD").is_file()]
    for path in (*unfinished, *site.glob("~*")):  # pip renames what it replaces to ~name
        shutil.rmtree(path, ignore_errors=True)
    return sorted(path.name.removesuffix(".dist-info") for path in unfinished)


@contextmanager
def locked(environment: Path) -> Iterator[None]:
    """Let one set-up at a time change ``environment``."""
    with (environment / "titan-setup.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def pip(*arguments: str) -> None:
    """Run this interpreter's pip, showing its output.

    Raises:
        SetupError: it failed.
    """
    command = [sys.executable, "-m", "pip", *arguments]
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    if subprocess.run(command, check=False, env=environment).returncode != 0:
        raise SetupError(
            f"pip {arguments[0]} failed (its messages stand above); the environment is unfinished, "
            "and the next call takes it up again"
        )


def ensure_pip() -> None:
    """Add pip where it is missing (an interrupted or pip-less venv) and renew it where it is too old."""
    try:
        version = importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError:
        command = [sys.executable, "-m", "ensurepip"]
        if subprocess.run(command, check=False, stdout=subprocess.DEVNULL).returncode != 0:
            raise SetupError(
                f"environment ({sys.prefix}) has no pip and none can be added: delete it and call again"
            ) from None
        version = "0"
    if int(version.split(".")[0]) < _OLDEST_PIP:
        pip("install", "--quiet", "--upgrade", "pip")


def install_train(environment: Path) -> None:
    """Install torch, unless there is one, and the six packages."""
    facts = choose_torch.gather()
    if facts.installed is None:
        build = choose_torch.needed_build(facts)
        print(f"installing torch {choose_torch.VERSION} ({build} build); this takes a while", flush=True)
        pip(
            "install",
            *_PIP_QUIET,
            *choose_torch.pip_arguments(build, wheels_reachable=facts.wheels_reachable),
        )
    constraints = environment / "titan-constraints.txt"
    constraints.write_text(constraints_for((ROOT / "constraints.txt").read_text(), _torch_version()))
    print("installing the titan packages", flush=True)
    editable = [argument for package in PACKAGES for argument in ("--editable", str(ROOT / package))]
    pip("install", *_PIP_QUIET, "--constraint", str(constraints), *editable)
    if subprocess.run([sys.executable, "-c", _SMOKE], check=False).returncode != 0:
        raise SetupError(f"environment ({environment}) is damaged (see above): delete it and call again")


def install_tests(environment: Path) -> None:
    """Install nox."""
    print(f"installing nox into {environment}", flush=True)
    pip("install", *_PIP_QUIET, "--constraint", str(ROOT / "constraints.txt"), "nox>=2025.5.1")


def constraints_for(text: str, torch_version: str | None) -> str:
    """The constraints with the installed torch in place of the pinned one, so pip leaves it alone."""
    kept = [line for line in text.splitlines() if not line.startswith("torch==")]
    return "\n".join([*kept, f"torch=={torch_version}", ""])


def _torch_version() -> str | None:
    importlib.invalidate_caches()  # pip has run in another process
    try:
        return importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None


def run(purpose: str) -> None:
    """Bring this interpreter's environment up to date for ``train`` or ``tests``."""
    environment = Path(sys.prefix)
    stamp = environment / f"titan-setup-{purpose}.json"
    with locked(environment):
        current = _stamped(stamp) == fingerprint(ROOT, purpose, _torch_version())
        if not current:
            stamp.unlink(missing_ok=True)
            for name in remove_unfinished(Path(sysconfig.get_path("purelib"))):
                print(f"{name} was half installed by an interrupted call; installing it anew", flush=True)
        if purpose == "train" and _torch_version() is not None:
            choose_torch.check_installed(choose_torch.gather(), sys.executable)
        if current:
            return
        ensure_pip()
        {"train": install_train, "tests": install_tests}[purpose](environment)
        stamp.write_text(json.dumps({"fingerprint": fingerprint(ROOT, purpose, _torch_version())}))


def _stamped(stamp: Path) -> str | None:
    try:
        return str(json.loads(stamp.read_text())["fingerprint"])
    except (OSError, ValueError, KeyError):
        return None


def main() -> int:
    """Command line: ``setup_venv.py train|tests``."""
    if sys.argv[1:] not in (["train"], ["tests"]):
        print("usage: setup_venv.py train|tests", file=sys.stderr)
        return 2
    try:
        run(sys.argv[1])
    except choose_torch.TorchChoiceError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (SetupError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
