"""What speculation is worth: the arithmetic, against decoding counted step by step."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from outdraft.acceptance import Acceptance
from outdraft.goodput import (
    RoundCost,
    RoundProfile,
    net_benefit,
    plain_seconds,
    round_cost_from_speedup,
    speedup,
)

from .planted_rounds import accepted_from_chances, expected_tokens, expected_tokens_at, round_cost

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
        assert expected_tokens([]) == 1
        assert expected_tokens([1.0] * k) == k + 1
        assert expected_tokens([0.0] * k) == 1

    @given(st.floats(0.0, 0.99), LENGTHS)
    def test_the_closed_form(self, chance: float, k: int) -> None:
        closed = (1 - chance ** (k + 1)) / (1 - chance)
        assert expected_tokens(accepted_from_chances([chance] * k)) == pytest.approx(closed)
        assert expected_tokens_at(chance, k) == pytest.approx(closed)

    def test_against_simulated_rounds(self) -> None:
        chances = [0.9, 0.6, 0.7]
        accepted = np.random.default_rng(0).random((200_000, 3)) < chances
        emitted = 1 + np.cumprod(accepted, axis=1).sum(axis=1)
        found = expected_tokens(accepted_from_chances(chances))
        assert found == pytest.approx(1 + 0.9 + 0.54 + 0.378)
        assert emitted.mean() == pytest.approx(found, abs=0.01)

    @given(CHANCES, CHANCES, LENGTHS)
    def test_it_grows_with_the_chance_and_with_k(self, a: float, b: float, k: int) -> None:
        def tokens(chance: float, k: int) -> float:
            return expected_tokens(accepted_from_chances([chance] * k))

        assert tokens(min(a, b), k) <= tokens(max(a, b), k)
        assert 1 <= tokens(a, k) <= tokens(a, k + 1) <= k + 2


class TestCosts:
    def test_in_plain_steps(self) -> None:
        assert round_cost(4, draft=0.002, verify=0.032, step=0.02) == pytest.approx(2.0)

    @given(SECONDS, SECONDS, SECONDS)
    def test_without_a_draft_it_is_a_plain_step(
        self, draft: float, verify: float, step: float
    ) -> None:
        cost = round_cost(0, draft=draft, verify=verify, step=step)
        assert cost == 1
        assert speedup(expected_tokens([]), cost) == 1
        assert RoundCost(0, cost).ceiling == 1

    @given(CHANCES, LENGTHS, COSTS)
    def test_speedup_is_bounded_by_the_ceiling(self, chance: float, k: int, cost: float) -> None:
        ceiling = RoundCost(k, cost).ceiling
        assert speedup(expected_tokens_at(chance, k), cost) <= ceiling
        assert speedup(expected_tokens_at(1.0, k), cost) == ceiling

    @given(CHANCES, LENGTHS, COSTS)
    def test_net_benefit_is_what_the_speedup_is_above_one(
        self, chance: float, k: int, cost: float
    ) -> None:
        tokens = expected_tokens_at(chance, k)
        assert net_benefit(tokens, cost) == pytest.approx(speedup(tokens, cost) - 1)


class TestBreakEven:
    def test_by_hand(self) -> None:
        """k = 2 at the cost of 1.75 steps: 1 + c + c² = 1.75 at c = 0.5, of 2 tokens 0.375 each."""
        assert expected_tokens_at(0.5, 2) == 1.75
        assert RoundCost(2, 1.75).break_even_rate == pytest.approx(0.375)

    @given(st.integers(1, 12), st.floats(1.0, 13.0))
    def test_there_the_speedup_is_one(self, k: int, cost: float) -> None:
        assume(cost <= k + 1)
        rate = RoundCost(k, cost).break_even_rate
        assert rate is not None
        assert speedup(1 + k * rate, cost) == pytest.approx(1.0)

    @given(st.integers(1, 12), CHANCES)
    def test_it_needs_no_idealization(self, k: int, chance: float) -> None:
        """A round that costs what it emits breaks even at the rate it has."""
        accepted = accepted_from_chances([chance] * k)
        rate = RoundCost(k, expected_tokens(accepted)).break_even_rate
        assert rate == pytest.approx(math.fsum(accepted) / k, abs=1e-9)

    @given(LENGTHS, st.floats(1.001, 3.0))
    def test_out_of_reach(self, k: int, factor: float) -> None:
        cost = RoundCost(k, (k + 1) * factor)
        assert cost.break_even_rate is None
        assert cost.ceiling < 1

    @given(LENGTHS, st.floats(0.1, 1.0))
    def test_a_round_no_dearer_than_a_step_always_pays(self, k: int, cost: float) -> None:
        assert RoundCost(k, cost).break_even_rate == 0

    @given(LENGTHS)
    def test_everything_accepted_just_pays(self, k: int) -> None:
        assert RoundCost(k, k + 1.0).break_even_rate == (1.0 if k else 0.0)


profiles = st.builds(
    RoundProfile,
    k=st.just(6),
    rounds_by_accepted=st.tuples(*[st.integers(0, 200)] * 7).filter(any),
    num_undrafted=st.integers(0, 300),
)


def geometric(chance: float, k: int, rounds: int = 10**6) -> RoundProfile:
    """Rounds in which each place is accepted with the same chance."""
    counts = [round(rounds * chance**a * (1 - chance)) for a in range(k)]
    return RoundProfile(k, (*counts, rounds - sum(counts)), 0)


@pytest.mark.parametrize("chance", [0.1, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
def test_one_chance_for_all_places_gives_the_known_formula(chance: float, k: int) -> None:
    found = geometric(chance, 8).tokens_per_round(k)
    assert found == pytest.approx(expected_tokens_at(chance, k), rel=1e-3)


@given(profiles)
def test_shares_add_up_and_nothing_beats_its_length(profile: RoundProfile) -> None:
    assert sum(profile.stretches.values()) == pytest.approx(1, abs=1e-3)
    per_k = [profile.tokens_per_round(k) for k in range(1, 7)]
    assert per_k == sorted(per_k)
    assert all(1 <= tokens <= k + 1 for k, tokens in enumerate(per_k, 1))
    for k in range(1, 7):
        assert 1 <= profile.num_tokens / profile.num_steps_at(k) <= k + 1
        assert 0 <= profile.drafted_per_step(k) <= k + 1e-9


def test_at_its_own_length_a_profile_is_what_was_counted() -> None:
    profile = geometric(0.7, 5, rounds=1000)
    assert profile.num_steps_at(5) == pytest.approx(1000, rel=0.01)
    assert profile.drafted_per_step(5) == 5


def test_a_profile_from_counts() -> None:
    """10 rounds: 4 accepted none, 3 one, 3 two; 5 steps had no draft."""
    counts = Acceptance(10, 20, 9, accepted_per_position=[6, 3])
    profile = RoundProfile.from_counts(counts, 2, num_tokens=10 + 9 + 5 + 2, num_texts=2)
    assert profile == RoundProfile(2, (4, 3, 3), 5)
    assert profile.num_tokens == 24
    assert profile.drafted_per_step(2) == pytest.approx(20 / 15)
    short = Acceptance(10, 15, 9, accepted_per_position=[6, 3])
    assert RoundProfile.from_counts(short, 2, 26, 2).drafted_per_step(2) == pytest.approx(1)  # type: ignore[union-attr]
    assert RoundProfile.from_counts(Acceptance(0, 20, 9), 2, 50, 2) is None
    assert RoundProfile.from_counts(Acceptance(10, 20, 9), 2, 50, 2) is None


@given(
    rounds=st.integers(1, 500),
    undrafted=st.integers(0, 500),
    k=st.integers(1, 8),
    share=st.floats(0, 1),
    cost=st.floats(0.2, 20),
    texts=st.integers(1, 50),
)
def test_the_cost_that_made_the_speedup_is_found(
    rounds: int, undrafted: int, k: int, share: float, cost: float, texts: int
) -> None:
    accepted = round(share * rounds * k)
    after_first = rounds + undrafted + accepted
    speedup = after_first / (rounds * cost + undrafted)
    found = round_cost_from_speedup(
        Acceptance(rounds, rounds * k, accepted), after_first + texts, texts, speedup
    )
    assert found is not None
    assert found.k == k
    assert found.steps == pytest.approx(cost, rel=1e-6)


@pytest.mark.parametrize(
    "counts",
    [
        Acceptance(0, 40, 30),  # rounds not counted (llama.cpp's answers)
        Acceptance(0, 0, 0),
        Acceptance(90, 360, 30),  # more rounds than steps: others were there too
    ],
)
def test_counts_that_say_nothing(counts: Acceptance) -> None:
    assert round_cost_from_speedup(counts, num_tokens=110, num_texts=10, speedup=1.5) is None


def test_a_speedup_beyond_what_was_accepted_is_no_cost() -> None:
    """20 rounds, 60 undrafted steps: even free rounds would not give so much."""
    assert round_cost_from_speedup(Acceptance(20, 80, 20), 110, 10, speedup=3.0) is None
