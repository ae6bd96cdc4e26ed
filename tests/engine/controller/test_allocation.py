"""The allocation is the best of all allocations."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outdraft.engine.controller.allocation import allocate
from outdraft.engine.native.library import library
from outdraft.goodput import survival
from outdraft.step_costs import ProposerCosts

if library() is None:
    pytest.skip("the library is not compiled here", allow_module_level=True)

SECONDS = st.floats(0.0, 2.0)
Instance = tuple[np.ndarray, np.ndarray, ProposerCosts, np.ndarray]


@st.composite
def instances(draw: st.DrawFn) -> Instance:
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
    prices = ProposerCosts(draw(SECONDS), draw(SECONDS), draw(SECONDS))
    is_drafted = np.array(draw(st.lists(st.booleans(), min_size=num, max_size=num)))
    return survival(np.array(rates)) * weights[:, None], verification, prices, is_drafted


def every(gains: np.ndarray) -> list[tuple[int, ...]]:
    return list(product(range(gains.shape[1] + 1), repeat=len(gains)))


def result(lengths: Iterable[int], instance: Instance) -> tuple[float, float]:
    """Tokens and seconds."""
    gains, verification, prices, is_drafted = instance
    lengths = list(lengths)
    tokens = len(gains) + sum(gains[at, :k].sum() for at, k in enumerate(lengths))
    drafted = [k for k, drafts in zip(lengths, is_drafted, strict=True) if drafts]
    drafting = prices.seconds(max(drafted, default=0), sum(drafted))
    return float(tokens), float(verification[sum(lengths)]) + drafting


@given(instances())
@settings(deadline=None, max_examples=300)
def test_equals_brute_force(instance: Instance) -> None:
    def goodput(lengths: Iterable[int]) -> float:
        tokens, seconds = result(lengths, instance)
        return tokens / seconds

    gains, verification, prices, is_drafted = instance
    found = allocate(gains, verification, prices, is_drafted=is_drafted)
    assert goodput(found.tolist()) == pytest.approx(max(map(goodput, every(gains))))


@given(instances(), st.floats(0.01, 10))
@settings(deadline=None, max_examples=200)
def test_at_a_pace_equals_brute_force(instance: Instance, pace: float) -> None:
    """Tokens - pace * seconds, which the goodput alone does not tell."""

    def worth(lengths: Iterable[int]) -> float:
        tokens, seconds = result(lengths, instance)
        return tokens - pace * seconds

    gains, verification, prices, is_drafted = instance
    found = allocate(gains, verification, prices, is_drafted=is_drafted, pace=pace)
    assert worth(found.tolist()) == pytest.approx(max(map(worth, every(gains))), abs=1e-9)


@given(instances(), st.floats(0.01, 10), st.floats(0.1, 8))
@settings(deadline=None, max_examples=200)
def test_a_limit_of_seconds_equals_brute_force(
    instance: Instance, pace: float, most_seconds: float
) -> None:
    """Where all drafts cost the same: of dearer and cheaper ones, filling a limit is a riddle."""
    gains, verification, prices, _ = instance
    instance = gains, verification, prices, np.ones(len(gains), bool)

    def worth(lengths: Iterable[int]) -> float:
        tokens, seconds = result(lengths, instance)
        return tokens - pace * seconds

    def is_within(lengths: Iterable[int], allowed: float = 0.0) -> bool:
        return not any(lengths) or result(lengths, instance)[1] <= most_seconds + allowed

    found = allocate(gains, verification, prices, pace=pace, most_seconds=most_seconds).tolist()
    best = max(map(worth, filter(is_within, every(gains))))
    assert is_within(found, 1e-9)
    assert worth(found) == pytest.approx(best, abs=1e-6)


def test_certain_tokens_are_taken_from_the_first_on() -> None:
    """All equal: a later position never goes before an earlier one of its sequence."""
    verification = np.array([1.0, 1.1, 1.2, 9.0, 9.1, 9.2, 9.3])
    found = allocate(np.ones((2, 3)), verification, ProposerCosts(0.0, 0.01, 0.0))
    assert found.tolist() == [1, 1]


def test_nothing_where_nothing_pays() -> None:
    found = allocate(np.full((3, 4), 0.1), np.arange(1.0, 14.0), ProposerCosts())
    assert found.tolist() == [0, 0, 0]


@pytest.mark.parametrize("pace", [None, 1.0])
def test_no_room_for_any_draft(pace: float | None) -> None:
    found = allocate(np.zeros((2, 3)), np.ones(7), ProposerCosts(), pace=pace)
    assert found.tolist() == [0, 0]
