"""Checks a finished run folder: ``check_run.py RUNS --steps 20``.

RUNS must hold exactly one run; its files must be there and its loss must have fallen.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

_FILES = ("config.toml", "metrics.jsonl", "environment.json", "report.html")


def problems(run: Path, steps: int) -> list[str]:
    """What is wrong with the run folder."""
    missing = [f"{name} is missing" for name in _FILES if not (run / name).is_file()]
    if missing:
        return missing
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    found = []
    logged = [row["step"] for row in rows]
    if not logged or logged[-1] != steps or len(set(logged)) != len(logged):
        found.append(f"steps in metrics.jsonl are {logged}; expected each once, up to {steps}")
    losses = [row["loss"] for row in rows if row.get("loss") is not None]
    if len(losses) < 2 or not losses[-1] < losses[0] - 0.5:
        found.append(f"the loss did not fall: {losses}")
    return found


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--steps", type=int, required=True)
    options = parser.parse_args()
    runs = [path for path in options.runs.iterdir() if path.is_dir()] if options.runs.is_dir() else []
    if len(runs) != 1:
        print(f"expected one run in {options.runs}, found {len(runs)}")
        return 1
    found = problems(runs[0], options.steps)
    print("\n".join(found) if found else f"{runs[0]} is complete")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
