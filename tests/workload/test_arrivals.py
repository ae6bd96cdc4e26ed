from __future__ import annotations

import statistics
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outdraft.errors import OptionError
from outdraft.workload.arrivals import constant, gamma, poisson, ramp, replay


def gaps(offsets: list[int]) -> list[float]:
    return [(b - a) / 1e9 for a, b in pairwise(offsets)]


@given(rate=st.floats(0.1, 1000), count=st.integers(0, 50), seed=st.integers(0, 5))
def test_in_order_and_reproducible(rate: float, count: int, seed: int) -> None:
    for offsets in (constant(rate, count), poisson(rate, count, seed), ramp(rate, 2 * rate, count)):
        assert len(offsets) == count
        assert offsets == sorted(offsets)
        assert all(offset >= 0 for offset in offsets)
    assert poisson(rate, count, seed) == poisson(rate, count, seed)


def test_constant_is_even() -> None:
    assert constant(4, 3) == [0, 250_000_000, 500_000_000]


@pytest.mark.parametrize(("burstiness", "spread"), [(1.0, 1.0), (0.25, 2.0), (4.0, 0.5)])
def test_gamma_keeps_the_rate_and_has_the_spread(burstiness: float, spread: float) -> None:
    """The deviation of a gamma gap over its mean is 1 / sqrt(shape)."""
    found = gaps(gamma(50, 20_000, 1, burstiness=burstiness))
    assert statistics.mean(found) == pytest.approx(1 / 50, rel=0.05)
    assert statistics.stdev(found) * 50 == pytest.approx(spread, rel=0.05)


def test_ramp_speeds_up() -> None:
    found = gaps(ramp(1, 10, 100))
    assert found[0] > 0.8
    assert found[-1] == pytest.approx(0.1)
    assert found == sorted(found, reverse=True)


def test_replay_starts_at_zero_and_keeps_the_gaps() -> None:
    assert replay([1700000010.0, 1700000008.5, 1700000012.0]) == [0, 1_500_000_000, 3_500_000_000]
    assert replay([10.0, 12.0], speed=2) == [0, 1_000_000_000]
    assert replay([]) == []


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_a_rate_is_positive(rate: float) -> None:
    with pytest.raises(OptionError, match="rate"):
        constant(rate, 1)


def test_burstiness_is_positive() -> None:
    with pytest.raises(OptionError, match="burstiness"):
        gamma(1, 1, 0, burstiness=0)
