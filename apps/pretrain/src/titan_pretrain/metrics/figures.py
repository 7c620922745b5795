"""Line charts as SVG that takes its colours from the page it stands in, so dark mode works."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, NullLocator

__all__ = ["Series", "line_chart"]

# Colours that only stand for CSS variables; no two may be equal.
_VARIABLES = {"#010203": "--ink", "#010204": "--grid", "#010205": "--series-1", "#010206": "--series-2"}
_INK, _GRID, *_SERIES = _VARIABLES
_STYLE: dict[Any, Any] = {  # matplotlib types the keys by a list of literals
    "axes.edgecolor": _GRID,
    "axes.labelcolor": _INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 10,
    "grid.color": _GRID,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.labelcolor": _INK,
    "path.simplify_threshold": 0.5,
    "svg.fonttype": "none",
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
}
_SMOOTHED_FROM = 100  # points; with fewer the raw line is calm enough
_MARKED_UP_TO = 30


@dataclass(frozen=True)
class Series:
    """One line of a chart.

    Attributes:
        label: name in the legend.
        steps: x values.
        values: y values; ``None`` leaves a gap.
        kind: ``smooth`` adds a running mean over the noisy values, ``points`` marks every value,
            ``steps`` holds each value until the next.
    """

    label: str
    steps: Sequence[int]
    values: Sequence[float | None]
    kind: Literal["line", "smooth", "points", "steps"] = "line"

    @property
    def numbers(self) -> list[float]:
        """The values with NaN for gaps."""
        return [math.nan if value is None else float(value) for value in self.values]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(map(math.isfinite, self.numbers))


def line_chart(series: Sequence[Series], *, log: Literal[None, 2, 10] = None) -> str | None:
    """Draw ``series`` over the step.

    Args:
        series: At most as many as there are colours; empty ones are left out.
        log: Base of a logarithmic y axis, used where all values are positive.

    Returns:
        An ``<svg>`` element, or ``None`` if no series has a value.
    """
    drawn = [one for one in series if not one.is_empty]
    if not drawn:
        return None
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": drawn[0].label}):
        figure = Figure(figsize=(6.4, 3.2))
        figure.subplots_adjust(left=0.11, right=0.98, top=0.93, bottom=0.16)
        axes = figure.add_subplot(xlabel="step")
        for one, colour in zip(drawn, _SERIES, strict=False):
            _draw(axes, one, colour)
        _scale(axes, drawn, log)
        if len(drawn) > 1:
            axes.legend()
        return _svg(figure)


def _draw(axes: Axes, series: Series, colour: str) -> None:
    numbers = series.numbers
    if series.kind == "smooth" and len(numbers) >= _SMOOTHED_FROM:
        axes.plot(series.steps, numbers, color=colour, linewidth=0.8, alpha=0.35)
        axes.plot(series.steps, _centred_mean(numbers), color=colour, linewidth=1.8, label=series.label)
        return
    marked = series.kind == "points" or len(numbers) <= _MARKED_UP_TO
    axes.plot(
        series.steps,
        numbers,
        color=colour,
        linewidth=1.6,
        label=series.label,
        drawstyle="steps-post" if series.kind == "steps" else "default",
        marker="o" if marked else None,
        markersize=3.5,
    )


def _centred_mean(numbers: Sequence[float]) -> list[float]:
    """Mean over a fortieth of the series around each value; a trailing mean would lag behind the loss."""
    half = max(2, len(numbers) // 80)
    values = np.asarray(numbers, dtype=np.float64)
    finite = np.isfinite(values)
    window = np.ones(2 * half + 1)
    total = np.convolve(np.where(finite, values, 0.0), window, mode="same")
    count = np.convolve(finite.astype(np.float64), window, mode="same")
    return [float(mean) for mean in np.where(count > 0, total / np.maximum(count, 1.0), np.nan)]


def _scale(axes: Axes, drawn: Sequence[Series], log: int | None) -> None:
    axes.grid(visible=True)
    axes.ticklabel_format(axis="y", scilimits=(-2, 6))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    finite = [number for one in drawn for number in one.numbers if math.isfinite(number)]
    if all(number.is_integer() for number in finite):
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    if log is not None and min(finite) > 0:
        axes.set_yscale("log", base=log)
        axes.yaxis.set_minor_locator(NullLocator())
    elif max(finite) - min(finite) < 1e-3 * abs(max(finite)):
        # A constant would be drawn at a scale that turns rounding into mountains.
        axes.set_ylim(*sorted((0.0, 1.2 * max(finite) or 1.0)))


def _svg(figure: Figure) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]  # the XML prologue has no place inside HTML
    for colour, variable in _VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    return svg
