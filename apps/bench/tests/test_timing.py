import pytest

from titan_bench.timing import Comparison, interleave


def test_ratio_is_the_median_of_rounds():
    comparison = Comparison(ours=(1.0, 2.0, 10.0), theirs=(2.0, 2.0, 5.0))
    assert comparison.ratio == 1.0
    assert comparison.spread[0] <= comparison.ratio <= comparison.spread[1]


def test_a_loaded_machine_does_not_move_the_ratio():
    ours = [1.0] * 5 + [7.0] * 5  # both sides slow down together
    comparison = Comparison(tuple(ours), tuple(0.9 * seconds for seconds in ours))
    assert comparison.ratio == pytest.approx(0.9)


def test_sides_take_turns_at_being_first():
    calls: list[str] = []
    comparison = interleave(lambda: calls.append("a"), lambda: calls.append("b"), 4)
    assert calls == ["a", "b", "b", "a", "a", "b", "b", "a"]
    assert len(comparison.ours) == len(comparison.theirs) == 4
