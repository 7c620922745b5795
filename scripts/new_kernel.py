"""Makes the room of a new operator of titan_kernels from the example in packages/titan-kernels/template.

    python scripts/new_kernel.py my_op

The new room works as it is: an operator ``my_op(x, factor)`` with reference, CUDA and Triton
implementations, cases and tests.  docs/adding-a-kernel.md tells how to go on.
"""

from __future__ import annotations

import argparse
import importlib.util
import keyword
import re
import subprocess
import sys
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "packages/titan-kernels"
EXAMPLE = "new_op"


def problem(name: str, package: Path = PACKAGE) -> str | None:
    """Why the name will not do."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        return f"name ({name!r}): it must be a lower-case Python name, such as my_op"
    if name == EXAMPLE:
        return f"name ({name!r}): it is the example's own; choose another"
    if (room(name, package)).exists():
        return f"name ({name!r}): {room(name, package)} exists already"
    return None


def room(name: str, package: Path) -> Path:
    """The folder of an operator."""
    return package / "src/titan_kernels/ops" / name


def make(name: str, package: Path = PACKAGE) -> list[Path]:
    """Write the room and its test, and export the operator; returns the files."""
    made = []
    for source in sorted((package / "template").iterdir()):
        target = room(name, package) / source.name
        if source.name == "tests.py":
            target = package / "tests/ops" / f"test_{name}.py"
        target.parent.mkdir(parents=True, exist_ok=True)
        text = source.read_text().replace(EXAMPLE, name).replace(EXAMPLE.upper(), name.upper())
        target.write_text(text)
        made.append(target)
    index = room("__init__.py", package)
    index.write_text(export(index.read_text(), name))
    return [*made, index]


def export(text: str, name: str) -> str:
    """``ops/__init__.py`` with one operator more; :func:`tidy` puts the lines in order."""
    head, found, tail = text.partition("__all__ = [\n")
    if not found:
        raise SystemExit("ops/__init__.py has no __all__ to add to")
    head = head.rstrip() + f"\nfrom titan_kernels.ops.{name} import {name}\n\n"
    return f'{head}{found}    "{name}",\n{tail}'


def tidy(paths: list[Path]) -> bool:
    """Sort and format the Python files with ruff; says whether this Python has it and all is well."""
    if importlib.util.find_spec("ruff") is None:
        return False
    files = [str(path) for path in paths if path.suffix == ".py"]
    commands = (["format"], ["check", "--fix"])
    runs = [subprocess.run([sys.executable, "-m", "ruff", *each, "--quiet", *files]) for each in commands]
    return not any(run.returncode for run in runs)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description="Make the room of a new operator.")
    parser.add_argument("name", help="the operator's name, such as my_op")
    name = parser.parse_args().name
    if reason := problem(name):
        print(f"error: {reason}", file=sys.stderr)
        return 2
    made = make(name)
    for path in made:
        print(path.relative_to(PACKAGE.parents[1]))
    if not tidy(made):
        print("next: pip install --constraint constraints.txt ruff")
        print("      ruff check --fix packages/titan-kernels; ruff format packages/titan-kernels")
    print("next: pip install --constraint constraints.txt --editable packages/titan-kernels")
    print(f"      pytest packages/titan-kernels/tests/ops -k {name}; docs/adding-a-kernel.md tells the rest")
    return 0


if __name__ == "__main__":
    sys.exit(main())
