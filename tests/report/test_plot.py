from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from outdraft.report.plot import Scale, labelled, ticks

_values = st.floats(0.001, 1e6)


def test_places() -> None:
    scale = Scale(0.0, 10.0, 100.0, 0.0)
    assert [scale.at(each) for each in (0, 5, 10, -1, 11)] == [100, 50, 0, 100, 0]
    assert Scale(1.0, 1.0, 0.0, 10.0).at(1.0) == 5.0


def test_round_ticks() -> None:
    assert ticks(0.0, 30.0) == [0, 10, 20, 30]
    assert [round(each, 9) for each in ticks(0.88, 1.12)] == [0.9, 0.95, 1.0, 1.05, 1.1]
    assert ticks(3.0, 3.0) == [3.0]


@given(_values, _values)
def test_ticks_lie_within_and_are_few(one: float, other: float) -> None:
    low, high = min(one, other), max(one, other)
    assume(high > low * (1 + 1e-6))
    found = ticks(low, high)
    step = found[1] - found[0] if len(found) > 1 else high
    assert 1 <= len(found) <= 6
    assert all(low - 1e-6 * step <= each <= high + 1e-6 * step for each in found)
    labels = [label for _, label in labelled(found)]
    assert len(set(labels)) == len(labels)


def test_labels_have_the_places_they_need() -> None:
    assert [label for _, label in labelled([0.0, 0.25, 0.5])] == ["0.00", "0.25", "0.50"]
    assert [label for _, label in labelled([0.0, 1000.0])] == ["0", "1,000"]
    assert labelled([0.0]) == [(0.0, "0")]
