"""What speculation is worth: the arithmetic, against decoding counted step by step."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from outdraft.goodput import (
    accepted_from_chances,
    best_k,
    break_even_chance,
    break_even_rate,
    ceiling,
    expected_tokens,
    expected_tokens_at,
    net_benefit,
    plain_seconds,
    round_cost,
    speedup,
)

SECONDS = st.floats(1e-5, 10.0)
CHANCES = st.floats(0.0, 1.0)
LENGTHS = st.integers(0, 12)
COSTS = st.floats(0.5, 20.0)


@given(num_sequences=st.integers(1, 64), num_steps=st.integers(1, 9), step=SECONDS)
def test_plain_decoding_takes_a_step_for_a_token_of_each(
    num_sequences: int, num_steps: int, step: float
) -> None:
    took = plain_seconds(num_sequences * num_steps, num_sequences, step)
    assert took == pytest.approx(num_steps * step)


def test_a_step_that_lets_two_sequences_differ() -> None:
    """5 tokens and 1: as plain steps they would have been 3 each, on average."""
    assert plain_seconds(6, 2, 0.01) == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("plain", "spent", "benefit"),
    [(0.03, 0.02, 0.5), (0.02, 0.02, 0.0), (0.01, 0.02, -0.5), (0.06, 0.02, 2.0)],
)
def test_net_benefit(plain: float, spent: float, benefit: float) -> None:
    assert net_benefit(plain, spent) == pytest.approx(benefit)


@given(num_sequences=st.integers(1, 64), step=SECONDS)
def test_speculation_that_does_nothing_breaks_even(num_sequences: int, step: float) -> None:
    plain = plain_seconds(num_sequences, num_sequences, step)
    assert net_benefit(plain, step) == pytest.approx(0.0, abs=1e-12)


class TestTokensOfARound:
    @pytest.mark.parametrize("k", [0, 1, 5])
    def test_the_ends_are_exact(self, k: int) -> None:
        assert expected_tokens_at(0.0, k) == 1
        assert expected_tokens_at(1.0, k) == k + 1
        assert expected_tokens([]) == 1
        assert expected_tokens([1.0] * k) == k + 1

    @given(st.floats(0.0, 0.99), LENGTHS)
    def test_the_closed_form(self, chance: float, k: int) -> None:
        closed = (1 - chance ** (k + 1)) / (1 - chance)
        assert expected_tokens_at(chance, k) == pytest.approx(closed)

    @given(CHANCES, LENGTHS)
    def test_one_chance_is_the_same_chance_at_every_place(self, chance: float, k: int) -> None:
        by_place = expected_tokens(accepted_from_chances([chance] * k))
        assert expected_tokens_at(chance, k) == pytest.approx(by_place)

    def test_against_rounds_played(self) -> None:
        chances = [0.9, 0.6, 0.7]
        accepted = np.random.default_rng(0).random((200_000, 3)) < chances
        emitted = 1 + np.cumprod(accepted, axis=1).sum(axis=1)
        found = expected_tokens(accepted_from_chances(chances))
        assert found == pytest.approx(1 + 0.9 + 0.54 + 0.378)
        assert emitted.mean() == pytest.approx(found, abs=0.01)

    @given(CHANCES, CHANCES, LENGTHS)
    def test_it_grows_with_the_chance_and_with_k(self, a: float, b: float, k: int) -> None:
        assert expected_tokens_at(min(a, b), k) <= expected_tokens_at(max(a, b), k)
        assert 1 <= expected_tokens_at(a, k) <= expected_tokens_at(a, k + 1) <= k + 2


class TestCosts:
    def test_in_plain_steps(self) -> None:
        assert round_cost(4, draft=0.002, verify=0.032, step=0.02) == pytest.approx(2.0)

    @given(SECONDS, SECONDS, SECONDS)
    def test_without_a_draft_it_is_a_plain_step(
        self, draft: float, verify: float, step: float
    ) -> None:
        cost = round_cost(0, draft=draft, verify=verify, step=step)
        assert cost == 1
        assert speedup(expected_tokens_at(0.7, 0), cost) == 1
        assert ceiling(0, cost) == 1

    @given(CHANCES, LENGTHS, COSTS)
    def test_speedup_is_bounded_by_the_ceiling(self, chance: float, k: int, cost: float) -> None:
        assert speedup(expected_tokens_at(chance, k), cost) <= ceiling(k, cost)
        assert speedup(expected_tokens_at(1.0, k), cost) == ceiling(k, cost)

    @given(CHANCES, LENGTHS, COSTS)
    def test_net_benefit_is_what_the_speedup_is_above_one(
        self, chance: float, k: int, cost: float
    ) -> None:
        tokens = expected_tokens_at(chance, k)
        assert net_benefit(tokens, cost) == pytest.approx(speedup(tokens, cost) - 1)


class TestBreakEven:
    def test_by_hand(self) -> None:
        """k = 2 at the cost of 1.75 steps: 1 + c + c² = 1.75 at c = 0.5, of 2 tokens 0.375 each."""
        assert break_even_chance(2, 1.75) == pytest.approx(0.5)
        assert break_even_rate(2, 1.75) == pytest.approx(0.375)

    @given(st.integers(1, 12), st.floats(1.0, 13.0))
    def test_there_the_speedup_is_one(self, k: int, cost: float) -> None:
        assume(cost <= k + 1)
        chance, rate = break_even_chance(k, cost), break_even_rate(k, cost)
        assert chance is not None
        assert rate is not None
        assert speedup(expected_tokens_at(chance, k), cost) == pytest.approx(1.0)
        assert speedup(1 + k * rate, cost) == pytest.approx(1.0)
        of_chance = math.fsum(accepted_from_chances([chance] * k)) / k
        assert rate == pytest.approx(of_chance, abs=1e-9)

    @given(LENGTHS, st.floats(1.001, 3.0))
    def test_out_of_reach(self, k: int, factor: float) -> None:
        cost = (k + 1) * factor
        assert break_even_chance(k, cost) is None
        assert break_even_rate(k, cost) is None
        assert ceiling(k, cost) < 1

    @given(LENGTHS, st.floats(0.1, 1.0))
    def test_a_round_no_dearer_than_a_step_always_pays(self, k: int, cost: float) -> None:
        assert break_even_chance(k, cost) == 0
        assert break_even_rate(k, cost) == 0

    @given(LENGTHS)
    def test_everything_accepted_just_pays(self, k: int) -> None:
        cost = k + 1.0
        assert break_even_chance(k, cost) == (1.0 if k else 0.0)
        assert break_even_rate(k, cost) == (1.0 if k else 0.0)


class TestBestK:
    @staticmethod
    def costs(most: int, draft: float, verify: float) -> list[float]:
        return [
            round_cost(k, draft=draft, verify=1 + verify * k, step=1.0) for k in range(most + 1)
        ]

    def test_nothing_accepted_is_off(self) -> None:
        assert best_k([0.0] * 5, self.costs(5, 0.05, 0.0)) == 0

    def test_everything_accepted_is_all(self) -> None:
        assert best_k([1.0] * 5, self.costs(5, 0.05, 0.05)) == 5

    def test_equals_go_to_the_shortest(self) -> None:
        assert best_k([0.5, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]) == 1

    def test_there_must_be_a_cost_for_each(self) -> None:
        with pytest.raises(ValueError, match="need one more"):
            best_k([0.5], [1.0])

    @given(CHANCES, st.floats(0.0, 0.5), st.floats(0.0, 0.5))
    def test_no_other_k_is_better(self, chance: float, draft: float, verify: float) -> None:
        costs = self.costs(8, draft, verify)
        accepted = accepted_from_chances([chance] * 8)
        best = best_k(accepted, costs)
        worth = [speedup(expected_tokens_at(chance, k), cost) for k, cost in enumerate(costs)]
        assert worth[best] == pytest.approx(max(worth))
        assert worth[best] >= 1

    @given(CHANCES, CHANCES, st.floats(0.01, 0.5))
    def test_a_better_draft_is_never_used_for_less(self, a: float, b: float, draft: float) -> None:
        costs = self.costs(8, draft, 0.0)
        worse, better = (accepted_from_chances([chance] * 8) for chance in sorted((a, b)))
        assert best_k(worse, costs) <= best_k(better, costs)
