"""Runs the demo as a user would and checks its promises: ``check_demo.py RUNS COMMAND...``.

COMMAND is run_train.sh with ``--set run.dir=RUNS``.  It is called to train, to resume, and the run is
exported.  Bars: a first line within seconds, 100 steps in under three minutes, a loss that falls
from above 7 to below 4, every file there.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

FIRST_STEP_S = 60.0  # the bound for a busy CI machine; about 10 s on an idle one
TRAINING_S = 180.0
STEPS = 100
MORE_STEPS = 102
FILES = (
    "config.toml",
    "metrics.jsonl",
    "environment.json",
    "report.html",
    "tensorboard",
    "tokenizer/tokenizer.json",
)


class BarError(Exception):
    """A promise that does not hold."""


def require(holds: bool, bar: str) -> None:
    """Raise :class:`BarError` unless ``holds``."""
    if not holds:
        raise BarError(bar)
    print(f"ok: {bar}")


def run(command: list[str]) -> tuple[float, float]:
    """Run ``command``, showing its output; seconds until its first step and until its end."""
    started = time.monotonic()
    first_step = float("inf")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            if line.startswith("step ") and first_step == float("inf"):
                first_step = time.monotonic() - started
    require(process.returncode == 0, f"`{' '.join(command[:1])}` ends with exit code 0")
    return first_step, time.monotonic() - started


def read_losses(folder: Path) -> dict[int, float]:
    """Loss by step, from metrics.jsonl."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    require(len({row["step"] for row in rows}) == len(rows), "metrics.jsonl holds every step once")
    return {row["step"]: row["loss"] for row in rows}


def check_training(runs: Path, command: list[str]) -> Path:
    """Train from nothing."""
    first_step, seconds = run(command)
    require(first_step < FIRST_STEP_S, f"first step after {first_step:.0f} s, within {FIRST_STEP_S:g}")
    require(seconds < TRAINING_S, f"{STEPS} steps take less than {TRAINING_S:g} s ({seconds:.0f} s)")
    (folder,) = runs.iterdir()
    for name in FILES:
        require((folder / name).exists(), f"{name} is there")
    losses = read_losses(folder)
    require(max(losses) == STEPS, f"the last logged step is {STEPS}")
    require(
        losses[1] > 7 and losses[STEPS] < 4, f"the loss falls from {losses[1]:.2f} to {losses[STEPS]:.2f}"
    )
    return folder


def check_resume(folder: Path, command: list[str]) -> None:
    """Go on where the run ended."""
    run([*command, "--set", f"training.steps={MORE_STEPS}", "--resume", "auto"])
    require(max(read_losses(folder)) == MORE_STEPS, "--resume auto went on in the same folder")


def check_export(folder: Path, titan_pretrain: Path) -> None:
    """Export to Hugging Face's format."""
    run([str(titan_pretrain), "export", "--to", "hf", str(folder), str(folder / "hf")])
    names = {path.name for path in (folder / "hf").iterdir()}
    require(
        {"model.safetensors", "config.json", "tokenizer.json"} <= names, f"the export holds {sorted(names)}"
    )


def main() -> int:
    """Command line."""
    runs, command = Path(sys.argv[1]), sys.argv[2:]
    try:
        folder = check_training(runs, command)
        check_resume(folder, command)
        check_export(folder, runs.parent / "venv/bin/titan-pretrain")
    except BarError as error:
        print(f"FAILED: {error}")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
