"""Percentiles against numpy and by hand; their intervals against repeated sampling."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outdraft.stats.percentiles import interval_ranks, percentile, percentile_interval

VALUES = st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=60)
FRACTIONS = st.floats(0.01, 0.99)


@pytest.mark.parametrize(
    ("values", "q", "found"),
    [([3.0], 0.99, 3.0), ([1.0, 2.0], 0.5, 1.5), ([4.0, 1.0, 3.0, 2.0, 5.0], 0.75, 4.0)],
)
def test_percentile(values: list[float], q: float, found: float) -> None:
    assert percentile(values, q) == found


def test_nothing_has_no_percentile() -> None:
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


@given(VALUES, FRACTIONS, FRACTIONS)
def test_percentile_lies_in_the_sample_and_grows(values: list[float], a: float, b: float) -> None:
    low, high = percentile(values, min(a, b)), percentile(values, max(a, b))
    assert min(values) <= low <= high * (1 + 1e-12) <= max(values) * (1 + 2e-12)


@pytest.mark.parametrize(("q", "needed"), [(0.5, 6), (0.9, 36), (0.99, 368), (0.01, 368)])
def test_how_many_values_it_takes(q: float, needed: int) -> None:
    """By hand: all values below (or above) the percentile must be rarer than 2.5 %."""
    assert max(q, 1 - q) ** needed <= 0.025 < max(q, 1 - q) ** (needed - 1)
    assert percentile_interval([1.0] * (needed - 1), q) is None
    assert percentile_interval([1.0] * needed, q) == (1.0, 1.0)


def test_no_values_no_interval() -> None:
    assert percentile_interval([], 0.5) is None


@pytest.mark.parametrize(("q", "level"), [(0.0, 0.95), (1.0, 0.95), (0.5, 0.0), (0.5, 1.0)])
def test_bounds_are_fractions(q: float, level: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        interval_ranks(100, q, level)


@given(st.integers(1, 500), FRACTIONS, st.floats(0.5, 0.99), st.floats(0.5, 0.99))
def test_a_higher_level_is_never_narrower(size: int, q: float, a: float, b: float) -> None:
    narrow, wide = interval_ranks(size, q, min(a, b)), interval_ranks(size, q, max(a, b))
    if wide is not None:
        assert narrow is not None
        assert 1 <= wide[0] <= narrow[0] < narrow[1] <= wide[1] <= size


@given(st.lists(st.floats(1e-3, 1e3), min_size=6, max_size=60))
def test_the_interval_holds_the_sample_s_own_median(values: list[float]) -> None:
    interval = percentile_interval(values, 0.5)
    assert interval is not None
    assert interval[0] <= percentile(values, 0.5) <= interval[1]


@pytest.mark.parametrize(("q", "size"), [(0.5, 9), (0.5, 80), (0.9, 60), (0.99, 400)])
def test_it_covers_as_often_as_it_says(q: float, size: int) -> None:
    """With values of any kind: here of a heavy-tailed one, whose percentiles are known."""
    rng = np.random.default_rng(1)
    ranks = interval_ranks(size, q, 0.95)
    assert ranks is not None
    ordered = np.sort(rng.pareto(2.0, (4000, size)), axis=1)
    truth = (1 - q) ** -0.5 - 1
    held = (ordered[:, ranks[0] - 1] <= truth) & (truth <= ordered[:, ranks[1] - 1])
    assert 0.945 <= held.mean() <= 0.99  # never less; more where ranks are coarse
