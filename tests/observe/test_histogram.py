"""Means and percentiles from buckets, and their sums."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outdraft.observe.histogram import Histogram
from outdraft.observe.page import parse_page

BOUNDS = (0.1, 0.5, 1.0, 5.0, math.inf)
values = st.lists(st.floats(0, 20), min_size=1, max_size=60)
all_bounds = st.lists(st.sampled_from([0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 9.0]), unique=True).map(
    lambda bounds: (*sorted(bounds), math.inf)
)


def observed(seen: Sequence[float], bounds: tuple[float, ...] = BOUNDS) -> Histogram:
    counts = [0.0] * len(bounds)
    for value in seen:
        counts[bisect_left(bounds, value)] += 1
    return Histogram(bounds, tuple(counts), math.fsum(seen))


def page_of(histogram: Histogram, name: str, labels: str = "") -> str:
    lines = [f"{name}_sum{{{labels}}} {histogram.sum}\n"]
    below = 0.0
    for bound, count in zip(histogram.bounds, histogram.counts, strict=True):
        below += count
        lines.append(f'{name}_bucket{{{labels},le="{bound}"}} {below}\n')
    return "".join(lines)


@given(values, st.floats(0, 1))
def test_a_quantile_is_in_the_bucket_of_the_real_one(seen: list[float], q: float) -> None:
    histogram = observed(seen)
    rank = max(math.ceil(q * len(seen) - 1e-9), 1)
    real = sorted(seen)[rank - 1]
    bucket = histogram.bucket_of(q)
    assert bucket is not None
    low, high = bucket
    assert low <= real <= high
    quantile = histogram.quantile(q)
    assert quantile is not None
    assert low <= quantile <= high


@given(values, st.floats(0, 1), st.floats(0, 1), all_bounds)
def test_quantiles_never_fall(
    seen: list[float], one: float, other: float, bounds: tuple[float, ...]
) -> None:
    histogram = observed(seen, bounds)
    low, high = histogram.quantile(min(one, other)), histogram.quantile(max(one, other))
    if len(bounds) == 1:
        assert low is None
        assert high is None
    else:
        assert low is not None
        assert high is not None
        assert low <= high


@given(values, values, all_bounds, all_bounds)
def test_a_sum_is_that_of_all_observations_with_the_bounds_of_both(
    one: list[float], other: list[float], bounds: tuple[float, ...], more: tuple[float, ...]
) -> None:
    total = observed(one, bounds) + observed(other, more)
    shared = tuple(bound for bound in bounds if bound in more)
    expected = observed([*one, *other], shared)
    assert (total.bounds, total.counts) == (expected.bounds, expected.counts)
    assert total.sum == pytest.approx(expected.sum)
    assert Histogram.total([observed(one, bounds), observed(other, more)]) == total


@given(values, values)
def test_what_came_later(before: list[float], later: list[float]) -> None:
    grown = observed([*before, *later]).since(observed(before))
    assert grown.counts == observed(later).counts
    assert grown.sum == pytest.approx(math.fsum(later), abs=1e-9)
    assert observed(later).since(None) == observed(later)


@given(values)
def test_from_a_page(seen: list[float]) -> None:
    histogram = observed(seen)
    page = parse_page(page_of(histogram, "a_seconds", 'x="1"'))
    assert Histogram.read(page, "a_seconds") == histogram
    assert Histogram.read(page, "a") is None


def test_by_a_label() -> None:
    text = page_of(observed([0.2, 3]), "a", 'temperature="0"') + page_of(
        observed([9]), "a", 'temperature="1+"'
    )
    page = parse_page(text)
    assert Histogram.read_by(page, "a", "temperature") == {
        "0": observed([0.2, 3]),
        "1+": observed([9]),
    }
    assert Histogram.read_by(page, "b", "temperature") == {}


def test_nothing_observed() -> None:
    empty = observed([])
    assert (empty.count, empty.mean, empty.quantile(0.5), empty.bucket_of(0.5)) == (
        0, None, None, None,
    )  # fmt: skip


def test_beyond_the_last_bound() -> None:
    assert observed([7, 8, 9]).quantile(0.5) == 5
    assert observed([7, 8, 9]).mean == 8


@pytest.mark.parametrize("bound", ["NaN", "-Inf", "x", "1e999"])
def test_bounds_that_are_none(bound: str) -> None:
    page = parse_page(f'a_bucket{{le="1"}} 3\na_bucket{{le="{bound}"}} 5\n')
    found = Histogram.read(page, "a")
    assert found is not None
    assert (found.bounds, found.counts) == ((1, math.inf), (3, 2))


@given(values, st.integers(0, 60))
def test_zeros_that_are_taken_away_were_never_observed(seen: list[float], number: int) -> None:
    with_zeros = observed([*seen, *[0.0] * number])
    assert with_zeros.without_zeros(number) == observed(seen)
    assert with_zeros.without_zeros(1e9).counts == (0.0, *observed(seen).counts[1:])
