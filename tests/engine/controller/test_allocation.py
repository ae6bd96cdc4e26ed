"""The allocation is the best of all allocations."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outdraft.engine.controller.allocation import Prices, allocate
from outdraft.goodput import survival

SECONDS = st.floats(0.0, 2.0)


@st.composite
def instances(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, Prices, np.ndarray, np.ndarray]:
    """Gains, verification by draft tokens (never falling, steps and flats), prices, who drafts."""
    num, width = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    rates = draw(
        st.lists(
            st.lists(st.floats(0, 1), min_size=width, max_size=width), min_size=num, max_size=num
        )
    )
    weights = np.array(draw(st.lists(st.floats(0.5, 4), min_size=num, max_size=num)))
    rises = draw(st.lists(SECONDS, min_size=num * width, max_size=num * width))
    verification = draw(st.floats(0.1, 5)) + np.cumsum([0.0, *rises])
    prices = Prices(draw(SECONDS), draw(SECONDS), draw(SECONDS))
    is_drafted = np.array(draw(st.lists(st.booleans(), min_size=num, max_size=num)))
    return survival(np.array(rates)) * weights[:, None], verification, prices, is_drafted, weights


def goodput(
    lengths: tuple[int, ...],
    gains: np.ndarray,
    verification: np.ndarray,
    prices: Prices,
    is_drafted: np.ndarray,
    weights: np.ndarray,
) -> float:
    tokens = weights.sum() + sum(gains[at, :k].sum() for at, k in enumerate(lengths))
    drafted = [k for k, drafts in zip(lengths, is_drafted, strict=True) if drafts]
    seconds = verification[sum(lengths)]
    if any(drafted):
        seconds += prices.overhead + prices.per_depth * max(drafted)
        seconds += prices.per_token * sum(drafted)
    return float(tokens / seconds)


@given(instances())
@settings(deadline=None, max_examples=300)
def test_equals_brute_force(
    instance: tuple[np.ndarray, np.ndarray, Prices, np.ndarray, np.ndarray],
) -> None:
    gains, verification, prices, is_drafted, weights = instance
    num, width = gains.shape
    every = product(range(width + 1), repeat=num)
    best = max(goodput(lengths, *instance) for lengths in every)
    found = allocate(
        gains, verification, prices, emitted=float(weights.sum()), is_drafted=is_drafted
    )
    lengths = tuple(found.lengths.tolist())
    assert found.goodput == pytest.approx(best)
    assert goodput(lengths, *instance) == pytest.approx(best)


@given(instances(), st.floats(0.01, 10))
@settings(deadline=None, max_examples=200)
def test_at_a_pace_equals_brute_force(
    instance: tuple[np.ndarray, np.ndarray, Prices, np.ndarray, np.ndarray], pace: float
) -> None:
    """Tokens - pace * seconds, which the goodput alone does not tell."""
    gains, verification, prices, is_drafted, weights = instance

    def worth(lengths: tuple[int, ...]) -> float:
        tokens = weights.sum() + sum(gains[at, :k].sum() for at, k in enumerate(lengths))
        return float(tokens - pace * tokens / goodput(lengths, *instance))

    best = max(map(worth, product(range(gains.shape[1] + 1), repeat=len(gains))))
    found = allocate(
        gains,
        verification,
        prices,
        emitted=float(weights.sum()),
        is_drafted=is_drafted,
        pace=pace,
    )
    assert worth(tuple(found.lengths.tolist())) == pytest.approx(best, abs=1e-9)


def test_certain_tokens_are_taken_from_the_first_on() -> None:
    """All equal: a later position never goes before an earlier one of its sequence."""
    verification = np.array([1.0, 1.1, 1.2, 9.0, 9.1, 9.2, 9.3])
    found = allocate(np.ones((2, 3)), verification, Prices(0.0, 0.01, 0.0), emitted=2.0)
    assert found.lengths.tolist() == [1, 1]
    assert found.goodput == pytest.approx(4 / 1.21)


def test_nothing_where_nothing_pays() -> None:
    found = allocate(np.full((3, 4), 0.1), np.arange(1.0, 14.0), Prices(), emitted=3.0)
    assert found.lengths.tolist() == [0, 0, 0]
    assert found.goodput == 3.0


def test_no_room_for_any_draft() -> None:
    assert allocate(np.zeros((2, 3)), np.ones(1), Prices(), emitted=2.0).goodput == 2.0
    assert allocate(np.zeros((2, 3)), np.ones(1), Prices(), emitted=2.0, pace=1.0).goodput == 2.0
