"""Imports every module of an installed package: ``import_all.py titan_kernels``.

An undeclared dependency shows as the module that needs it.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys

# A module named after an optional dependency needs it, and is not imported where it isn't installed.
OPTIONAL = ("triton",)


def module_names(package_name: str) -> list[str]:
    """Names of the package and of all modules in it; ``__main__`` modules run when imported, so not them."""
    package = importlib.import_module(package_name)
    found = pkgutil.walk_packages(package.__path__, prefix=f"{package_name}.")
    absent = {name for name in OPTIONAL if importlib.util.find_spec(name) is None}
    left_out = {"__main__", *absent}
    names = (module.name for module in found)
    return [package_name, *(name for name in names if name.rpartition(".")[2] not in left_out)]


def failure(name: str) -> str | None:
    """Why ``name`` can't be imported; ``None`` if it can."""
    try:
        importlib.import_module(name)
    except ImportError as error:
        return f"{name}: {error}"
    return None


def main() -> int:
    """Import all; print what fails."""
    failures = [reason for name in module_names(sys.argv[1]) if (reason := failure(name))]
    print("\n".join(failures), end="\n" if failures else "")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
