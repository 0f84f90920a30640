"""Times measured in turn."""

from __future__ import annotations

from fwnkf.evaluation.timing import interleave


def test_candidates_take_turns_and_the_median_counts():
    order = []
    ticks = iter([0, 1, 1, 3, 10, 12, 12, 15, 20, 29, 30, 31])  # a: 1, 2, 9 and b: 2, 3, 1, in seconds
    candidates = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    taken = interleave(candidates, 3, clock=lambda: next(ticks))
    assert order == ["a", "b"] * 4  # the first turn does not count
    assert taken == {"a": 2, "b": 2}


def test_time_is_divided_by_the_calls_of_a_round():
    ticks = iter([0.0, 6.0])
    assert interleave({"a": lambda: None}, 1, calls=3, clock=lambda: next(ticks)) == {"a": 2.0}
