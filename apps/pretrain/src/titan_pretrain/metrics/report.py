"""report.html of a run folder: one file that any browser shows without a network.

``python -m titan_pretrain.metrics.report RUN_DIR`` writes it again, also for a run that still goes on
or was killed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import Any

from titan_pretrain.atomic import write_file
from titan_pretrain.config.dump import flatten, toml_value
from titan_pretrain.config.load import load_config
from titan_pretrain.config.sections import TrainConfig
from titan_pretrain.errors import DataError, PretrainError, UsageError
from titan_pretrain.metrics import environment, jsonl
from titan_pretrain.metrics.figures import Series, line_chart
from titan_pretrain.metrics.flops import model_tflops, num_parameters
from titan_pretrain.metrics.jsonl import Row
from titan_pretrain.metrics.outcome import Outcome, read_outcome
from titan_pretrain.terminal import prepare_streams

__all__ = ["FILE_NAME", "write_report"]

FILE_NAME = "report.html"
CONFIG = "config.toml"


def write_report(run_dir: Path) -> Path:
    """Write report.html into ``run_dir`` from the files it holds.

    Returns:
        The path of the report.

    Raises:
        DataError: ``run_dir`` has no metrics.jsonl, so it is no run folder.
        PretrainError: The report can't be written.
    """
    if not (run_dir / jsonl.FILE_NAME).is_file():
        raise DataError(
            f"run folder ({run_dir}) has no {jsonl.FILE_NAME}", hint="give a folder that a training run made"
        )
    path = run_dir / FILE_NAME
    try:
        write_file(path, _page(run_dir))
    except OSError as error:
        raise PretrainError(f"report ({path}) can't be written: {error.strerror or error}") from None
    return path


def _page(run_dir: Path) -> str:
    rows = jsonl.read_rows(run_dir / jsonl.FILE_NAME)
    config = _read_config(run_dir / CONFIG)
    name = run_dir.resolve().name
    body = [
        f"<h1>{escape(name)}</h1>",
        f'<p class="status">{escape(_status(rows, config, read_outcome(run_dir)))}</p>',
        _tiles(_final_figures(rows, config)),
        "<h2>Curves</h2>",
        _charts(rows),
        "<h2>Config</h2>",
        _config_table(config, run_dir / CONFIG),
        "<h2>Environment</h2>",
        _table((key, value, False) for key, value in _read_environment(run_dir).items()),
    ]
    css = (files("titan_pretrain.metrics") / "report.css").read_text(encoding="utf-8")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(name)}</title>\n<style>\n{css}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def _read_config(path: Path) -> TrainConfig | None:
    """The run's config; ``None`` where it is missing or of a release with other options."""
    try:
        return load_config(str(path)).config
    except UsageError:
        return None


def _read_environment(run_dir: Path) -> dict[str, str]:
    try:
        facts = json.loads((run_dir / environment.FILE_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {"": f"{environment.FILE_NAME} can't be read"}
    return {str(key): str(value) for key, value in facts.items()} if isinstance(facts, dict) else {}


def _status(rows: Sequence[Row], config: TrainConfig | None, outcome: Outcome | None) -> str:
    """How far the run is and how it ended, then how often it was logged."""
    done = outcome.step if outcome else rows[-1]["step"] if rows else 0
    if config is None:
        return _end(f"step {done}", outcome)
    every = config.metrics.every
    logged = "every step" if every == 1 else f"every {every} steps"
    return f"{_end(f'step {done} of {config.training.steps}', outcome)}; logged {logged}"


def _end(place: str, outcome: Outcome | None) -> str:
    if outcome is None:
        return f"running at {place}, or killed after it"
    texts = {
        "finished": f"finished at {place}",
        "stopped": f"stopped at {place} by {outcome.cause}",
        "failed": f"failed after {place}: {outcome.cause}",
    }
    return texts[outcome.state]


def _column(rows: Iterable[Row], name: str) -> list[float | None]:
    """A column with ``None`` for what is absent or no number."""
    values = (row.get(name) for row in rows)
    return [value if isinstance(value, int | float) else None for value in values]


def _known(rows: Iterable[Row], name: str) -> list[float]:
    return [value for value in _column(rows, name) if value is not None]


def _final_figures(rows: Sequence[Row], config: TrainConfig | None) -> dict[str, str]:
    """What the tiles at the top show; what was never measured is left out."""
    speeds, losses = _known(rows, "tokens_per_s"), _known(rows, "loss")
    validations, scales = _known(rows, "validation_loss"), _known(rows, "loss_scale")
    mfus, memory, tokens = _known(rows, "mfu"), _known(rows, "memory_gib"), _known(rows, "tokens")
    shown: dict[str, str | None] = {
        "final loss": f"{losses[-1]:.4f}" if losses else None,
        "best validation loss": f"{min(validations):.4f}" if validations else None,
        "tokens": f"{tokens[-1]:,.0f}" if tokens else None,
        "median tokens/s": f"{median(speeds):,.0f}" if speeds else None,
        "median MFU": f"{median(mfus):.1%}" if mfus else "n/a",
        "peak memory": f"{max(memory):.2f} GiB" if memory else None,
        "skipped steps": f"{_known(rows, 'skipped')[-1]:.0f}" if scales else None,
    }
    if config is not None:
        shown["parameters"] = f"{num_parameters(config.model) / 1e6:,.1f} M"
        if speeds:
            tflops = model_tflops(config.model, config.training.seq_len, median(speeds))
            shown["model TFLOP/s"] = f"{tflops:,.3g}"
    return {key: value for key, value in shown.items() if value is not None}


def _tiles(figures: Mapping[str, str]) -> str:
    cells = (f"<div><dt>{escape(key)}</dt><dd>{escape(value)}</dd></div>" for key, value in figures.items())
    return f'<dl class="tiles">{"".join(cells)}</dl>'


def _charts(rows: Sequence[Row]) -> str:
    def series(name: str, label: str, kind: Any = "line") -> Series:
        # A row without the column was no measurement; a null in it was one, and stays as a gap.
        measured = [row for row in rows if name in row]
        return Series(label, [row["step"] for row in measured], _column(measured, name), kind)

    charts = {
        ("Loss", "nats per token"): line_chart(
            [series("loss", "training", "smooth"), series("validation_loss", "validation", "points")]
        ),
        ("Learning rate", ""): line_chart([series("lr", "learning rate")]),
        ("Gradient norm", "before clipping"): line_chart([series("grad_norm", "gradient norm", "smooth")]),
        ("Throughput", "tokens/s"): line_chart([series("tokens_per_s", "throughput", "smooth")]),
        ("Peak memory", "GiB"): line_chart([series("memory_gib", "memory")]),
        ("Model FLOPs utilization", "share of peak"): line_chart([series("mfu", "mfu", "smooth")]),
        ("Loss scale", ""): line_chart([series("loss_scale", "loss scale", "steps")], log=2),
    }
    if _known(rows, "loss_scale"):
        charts["Skipped steps", "so far"] = line_chart([series("skipped", "skipped", "steps")])
    drawn = [_figure(title, unit, svg) for (title, unit), svg in charts.items() if svg is not None]
    return f'<div class="charts">{"".join(drawn)}</div>' if drawn else "<p>No step was logged yet.</p>"


def _figure(title: str, unit: str, svg: str) -> str:
    described = svg.replace("<svg", f'<svg role="img" aria-label="{escape(title)} over the step"', 1)
    small = f" <small>{escape(unit)}</small>" if unit else ""
    return f"<figure><h3>{escape(title)}{small}</h3>{described}</figure>"


def _config_table(config: TrainConfig | None, path: Path) -> str:
    if config is not None:
        defaults = flatten(TrainConfig())
        return "<p>Values that differ from the defaults are bold.</p>" + _table(
            (key, toml_value(value), value != defaults.get(key)) for key, value in flatten(config).items()
        )
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = f"{path.name} can't be read"
    return f"<pre>{escape(text)}</pre>"


def _table(cells: Iterable[tuple[str, str, bool]]) -> str:
    body = "".join(
        f"<tr{' class=set' if is_set else ''}><th>{escape(key)}</th><td>{escape(value)}</td></tr>"
        for key, value, is_set in cells
    )
    return f"<table>{body}</table>"


def main(arguments: Sequence[str]) -> int:
    """Command line: ``python -m titan_pretrain.metrics.report RUN_DIR``."""
    prepare_streams()
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print("usage: python -m titan_pretrain.metrics.report RUN_DIR", file=sys.stderr)  # noqa: T201
        return 0 if arguments in (["-h"], ["--help"]) else UsageError.exit_code
    try:
        print(write_report(Path(arguments[0])))  # noqa: T201
    except PretrainError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201
        return error.exit_code
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
