"""Charts: well-formed SVG without colours of its own, gaps and odd series included."""

import math
import xml.etree.ElementTree as ET

import pytest

from titan_pretrain.metrics.figures import Series, _centred_mean, line_chart


def parse(svg):
    assert svg.startswith("<svg")
    return ET.fromstring(svg)


@pytest.mark.parametrize("kind", ["line", "smooth", "points", "steps"])
@pytest.mark.parametrize("count", [1, 7, 500])
def test_charts_are_well_formed_and_take_their_colours_from_the_page(kind, count):
    svg = line_chart([Series("loss", range(count), [1.0 / (x + 1) for x in range(count)], kind)])
    parse(svg)
    assert "var(--series-1)" in svg
    assert "var(--ink)" in svg
    assert "#010" not in svg


def test_nothing_measured_is_no_chart():
    assert line_chart([]) is None
    assert line_chart([Series("mfu", [1, 2], [None, math.nan])]) is None


def test_gaps_break_the_line():
    whole = line_chart([Series("loss", range(6), [1.0, 2.0, 3.0, 2.0, 1.0, 0.5])])
    gap = line_chart([Series("loss", range(6), [1.0, 2.0, None, 2.0, 1.0, 0.5])])
    assert parse(gap) is not None
    assert whole != gap


def test_two_series_have_two_colours_and_a_legend():
    svg = line_chart([Series("training", [1, 2], [3, 2]), Series("validation", [2], [2.5], "points")])
    assert "var(--series-2)" in svg
    assert "validation" in svg
    assert "validation" not in line_chart([Series("training", [1, 2], [3, 2]), Series("validation", [], [])])


@pytest.mark.parametrize("values", [[0.0, 0.0, 0.0], [2.0, 2.0, 2.0], [-1.0, -1.0, -1.0], [0.0, 4.0, 8.0]])
def test_constant_and_zero_series_can_be_drawn_on_a_log_axis_too(values):
    parse(line_chart([Series("scale", [1, 2, 3], values)], log=2))


def test_a_long_run_stays_small():
    values = [math.sin(x) for x in range(50_000)]
    assert len(line_chart([Series("loss", range(50_000), values, "smooth")])) < 1_000_000


def test_the_mean_is_centred_and_passes_over_gaps():
    numbers = [float(x) for x in range(100)]
    numbers[50] = math.nan
    means = _centred_mean(numbers)
    assert means[20] == pytest.approx(20.0)
    assert means[50] == pytest.approx(50.0)
