"""A bar chart of how many times faster than eager PyTorch everyone is."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from titan_bench.errors import BenchError
from titan_bench.kernels.measure import TimedCase

__all__ = ["draw", "geometric_means"]

_COLOURS = {"cuda": "#2f6f3e", "triton": "#8cc084", "compile": "#d98e32", "liger": "#7a6fb0"}
_OTHER = "#888888"
_TICKS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.75, 1, 1.25, 1.5, 2, 3, 4, 6, 8, 12, 16, 32, 64)
_INCHES_PER_BAR, _INCHES_AROUND = 0.17, 1.6


def geometric_means(rows: Sequence[TimedCase]) -> dict[str, dict[str, float]]:
    """Speed-up over eager by operator and candidate, over the shapes that both have a time for."""
    logarithms: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        for name in row.seconds:
            speedup = row.speedup(name, "eager")
            if speedup is not None and name != "eager":
                logarithms.setdefault(row.op, {}).setdefault(name, []).append(math.log(speedup))
    return {
        op: {name: math.exp(sum(each) / len(each)) for name, each in names.items()}
        for op, names in logarithms.items()
    }


def draw(rows: Sequence[TimedCase], path: Path, title: str) -> None:
    """Write the chart.

    Args:
        rows: The results.
        path: A file whose name ends with .png, .svg or .pdf; its folder is made.
        title: Above the chart: the device, the dtype.

    Raises:
        BenchError: Nothing to draw, or the file can't be written.
    """
    means = geometric_means(rows)
    if not means:
        raise BenchError(f"--plot ({path}): no operator has a time of its own and one of eager PyTorch")
    bars = sum(len(names) + 1 for names in means.values())
    with matplotlib.rc_context({"svg.fonttype": "none", "font.size": 9}):
        figure = Figure(figsize=(8.0, _INCHES_AROUND + _INCHES_PER_BAR * bars), layout="constrained")
        axes = figure.add_subplot(title=title)
        axes.set_xlabel("times as fast as eager PyTorch (geometric mean of the shapes)")
        _bars(axes, means)
        figure.legend(loc="outside lower center", ncols=4, frameon=False)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, dpi=150)
        except OSError as error:
            raise BenchError(f"--plot ({path}) can't be written: {error.strerror or error}") from None


def _bars(axes: Axes, means: dict[str, dict[str, float]]) -> None:
    place, ticks, named = 0.0, [], set()
    for names in means.values():
        ticks.append(place + (len(names) - 1) / 2)
        for name, value in names.items():
            label = None if name in named else name
            named.add(name)
            # From 1 on: a bar to the left is slower than eager.
            axes.barh(place, value - 1.0, left=1.0, height=0.9, color=_COLOURS.get(name, _OTHER), label=label)
            axes.text(
                max(value, 1.0),
                place,
                f" {value:.2g}" if value < 0.1 else f" {value:.2f}",
                va="center",
                fontsize=7,
            )
            place += 1.0
        place += 1.0
    axes.set_yticks(ticks, list(means))
    axes.invert_yaxis()
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.margins(x=0.12)
    low, high = axes.get_xlim()
    ticks_within = [each for each in _TICKS if low <= each <= high]
    axes.xaxis.set_major_locator(FixedLocator(ticks_within))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axes.spines[["top", "right"]].set_visible(False)
