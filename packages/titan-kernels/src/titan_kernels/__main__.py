"""``python -m titan_kernels images``: the kernels that this copy of the package was built with."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
from collections.abc import Iterator

from titan_kernels import images
from titan_kernels.errors import TitanKernelsError

_HEADER = ("op", "image", "kernels", "KB", "registers", "spills", "shared")


def main(arguments: list[str] | None = None) -> int:
    """Command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m titan_kernels", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    listing = commands.add_parser(
        "images",
        help="list kernel images per op and architecture",
        description="Lists kernel images per op and architecture: number of kernels, size, most registers "
        "per thread, bytes spilled per thread, most static shared memory per block in bytes. PTX (compute_*) "
        "is compiled by the driver, so its registers are not known.",
    )
    listing.add_argument("--json", action="store_true", help="all facts of all kernels, as JSON")
    options = parser.parse_args(arguments)
    try:
        text = _json() if options.json else _table()
    except TitanKernelsError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return 1
    _print(text)
    return 0


def _print(text: str) -> None:
    try:
        print(text, flush=True)  # noqa: T201
    except BrokenPipeError:  # the reader, such as `head`, has seen enough; nor may Python's last flush fail
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _each() -> Iterator[tuple[str, str]]:
    return ((unit, arch) for unit in images.units() for arch in images.architectures(unit))


def _json() -> str:
    facts: dict[str, dict[str, object]] = {unit: {} for unit in images.units()}
    for unit, arch in _each():
        known = images.signatures(unit, arch) if arch.startswith("compute_") else images.info(unit, arch)
        kernels = {name: dataclasses.asdict(each) for name, each in known.items()}
        facts[unit][arch] = {"size": images.size(unit, arch), "kernels": kernels}
    return json.dumps(facts, indent=1)


def _table() -> str:
    rows = [_HEADER, *(_row(unit, arch) for unit, arch in _each())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _row(unit: str, arch: str) -> tuple[str, ...]:
    size = f"{images.size(unit, arch) / 1000:.0f}"
    if arch.startswith("compute_"):
        return (unit, arch, str(len(images.signatures(unit, arch))), size, "-", "-", "-")
    infos = images.info(unit, arch).values()
    registers = max(each.registers for each in infos)
    spills = sum(each.spill_stores + each.spill_loads for each in infos)
    shared = max(each.static_shared for each in infos)
    return (unit, arch, str(len(infos)), size, str(registers), str(spills), str(shared))


if __name__ == "__main__":
    raise SystemExit(main())
