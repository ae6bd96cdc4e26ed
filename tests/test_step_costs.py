"""Step costs: linear between measured sizes, never below the smallest, split into two parts."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outdraft.step_costs import (
    DraftingCosts,
    DraftPoint,
    ProposerCosts,
    RoundCosts,
    StepCosts,
    StepPoint,
    interpolate,
    verification_costs,
)

TIMES = st.floats(1e-4, 1.0)
TABLE = {1: 0.030, 4: 0.030, 8: 0.035, 16: 0.045, 32: 0.070, 64: 0.120}


@pytest.mark.parametrize(
    ("num_tokens", "seconds"),
    [
        (1, 0.010),  # measured
        (4, 0.013),
        (8, 0.021),
        (2, 0.011),  # between
        (6, 0.017),
        (0, 0.010),  # before the first
        (12, 0.029),  # behind the last: the last line goes on
    ],
)
def test_straight_lines(num_tokens: int, seconds: float) -> None:
    costs = StepCosts({8: 0.021, 1: 0.010, 4: 0.013})
    assert costs.seconds(num_tokens) == pytest.approx(seconds)


def test_a_single_measurement_serves_all() -> None:
    costs = StepCosts({4: 0.02})
    assert [costs.seconds(num_tokens) for num_tokens in (1, 4, 9)] == [0.02] * 3


@given(measured=st.dictionaries(st.integers(1, 64), TIMES, min_size=1))
@settings(deadline=None)
def test_no_step_is_cheaper_than_the_smallest(measured: dict[int, float]) -> None:
    """Whatever noise was measured: a falling line would end below zero."""
    costs = StepCosts(measured)
    least = measured[min(measured)]
    assert all(costs.seconds(num_tokens) >= least for num_tokens in range(1, 200))


@given(times=st.lists(TIMES, min_size=1, max_size=8))
@settings(deadline=None)
def test_more_tokens_never_cost_less_where_none_did(times: list[float]) -> None:
    measured = {2**index: seconds for index, seconds in enumerate(sorted(times))}
    estimates = [StepCosts(measured).seconds(num_tokens) for num_tokens in range(1, 300)]
    assert all(b >= a * (1 - 1e-12) for a, b in pairwise(estimates))


def test_interpolation_continues_on_both_sides() -> None:
    points = [(4.0, 8.0), (1.0, 2.0), (2.0, 4.0)]
    assert [interpolate(points, x) for x in (0, 1, 1.5, 3, 5)] == pytest.approx([0, 2, 3, 6, 10])


def test_one_slow_engine_does_not_spoil_the_table() -> None:
    slow = {size: 2 * each for size, each in TABLE.items()}
    costs = StepCosts.median_of([slow, TABLE, TABLE | {1: 0.031}])
    assert costs is not None
    assert costs.measured == TABLE | {1: 0.031}
    assert StepCosts.median_of([]) is None


def test_a_table_is_read_between_and_beyond_its_sizes() -> None:
    costs = StepCosts(TABLE)
    assert costs.seconds(12) == pytest.approx(0.040)
    assert costs.seconds(96) == pytest.approx(0.170)


def test_verifying_costs_what_the_table_adds_to_a_plain_step() -> None:
    """2 sequences with 7 draft tokens each: a step of 16 tokens, 15 ms over a step of 2."""
    cost = verification_costs(StepCosts(TABLE), 2, plain_seconds=0.040)
    assert [cost(0), cost(3), cost(7)] == pytest.approx([1, 1.125, 1.375])


def test_a_curve_goes_through_what_is_known() -> None:
    assert DraftingCosts({8: 1.8}).at(0) == 1
    assert DraftingCosts({8: 1.8}).at(4) == pytest.approx(1.4)
    assert DraftingCosts({2: 1.1, 8: 1.8}).at(5) == pytest.approx(1.45)
    told = DraftingCosts({8: 2.3}, lambda k: 1.0 if k < 4 else 1.5)  # 0.1 for each draft token
    assert [told.at(k) for k in (1, 3, 4, 8)] == pytest.approx([1.1, 1.3, 1.9, 2.3])


def test_no_step_is_quicker_than_a_plain_one() -> None:
    assert DraftingCosts({8: 0.7}).at(4) == 1


def planted_round(tokens: int, sequences: int, context: int) -> float:
    """Seconds of a machine on which everything is a line."""
    more = context - 128
    own = 0.01 + 0.002 * tokens + 0.001 * (sequences - 1)
    return own + 1e-6 * sequences * more + 1e-7 * tokens * more


SHAPES = [(1, 1, 128), (8, 1, 128), (32, 1, 128), (4, 4, 128), (8, 1, 1024), (16, 16, 512),
          (1, 1, 2048)]  # fmt: skip


def test_round_costs_find_what_was_planted() -> None:
    costs = RoundCosts.fit([StepPoint(*each, planted_round(*each)) for each in SHAPES])
    for shape in [(20, 4, 700), (2, 2, 128), (64, 8, 300)]:
        assert costs.verification(*shape) == pytest.approx(planted_round(*shape))
    assert costs.verification(1, 1, 16) == pytest.approx(planted_round(1, 1, 128))


def test_drafting_costs_find_what_was_planted() -> None:
    planted = ProposerCosts(0.003, 0.002, 0.0001, 0.00001)
    points = [DraftPoint(n, d, planted.seconds(d, n * d)) for n in (1, 4, 16) for d in (1, 3, 5)]
    found = ProposerCosts.fit(points, catch_up=0.00001)
    assert found.seconds(4, 32, 100) == pytest.approx(planted.seconds(4, 32, 100))
    assert found.seconds(0, 0) == 0


@given(noise=st.lists(st.floats(-0.009, 0.009), min_size=len(SHAPES), max_size=len(SHAPES)))
@settings(deadline=None)
def test_noise_makes_nothing_cheaper(noise: list[float]) -> None:
    points = [
        StepPoint(*each, planted_round(*each) + more)
        for each, more in zip(SHAPES, noise, strict=True)
    ]
    costs = RoundCosts.fit(points)
    assert min(costs.per_sequence, costs.per_read, costs.per_row_read) >= 0


def test_round_costs_survive_json() -> None:
    costs = RoundCosts(
        {1: 0.01, 8: 0.02}, 128, 0.001, 1e-6, 1e-7, {"eagle": ProposerCosts(0.1, 0.2, 0.3, 0.4)}
    )
    assert RoundCosts.from_json(json.loads(json.dumps(costs.to_json()))) == costs
    assert costs.drafting("eagle", 2, 6) == pytest.approx(0.1 + 0.4 + 1.8)
    assert costs.drafting("ngram", 2, 6) == 0
