from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outdraft.goodput import expected_tokens_at
from outdraft.records import AcceptanceCounts
from outdraft.tune.prediction import (
    Curve,
    Profile,
    drafted_per_step,
    num_steps_at,
    num_tokens,
    profile_of,
    round_tokens,
    stretches,
)

profiles = st.builds(
    Profile,
    k=st.just(6),
    rounds_by_accepted=st.tuples(*[st.integers(0, 200)] * 7).filter(any),
    num_undrafted=st.integers(0, 300),
)


def geometric(chance: float, k: int, rounds: int = 10**6) -> Profile:
    """Rounds in which each place is accepted with the same chance."""
    counts = [round(rounds * chance**a * (1 - chance)) for a in range(k)]
    return Profile(k, (*counts, rounds - sum(counts)), 0)


@pytest.mark.parametrize("chance", [0.1, 0.5, 0.8, 0.95])
@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
def test_one_chance_for_all_places_gives_the_known_formula(chance: float, k: int) -> None:
    found = round_tokens(geometric(chance, 8), k)
    assert found == pytest.approx(expected_tokens_at(chance, k), rel=1e-3)


@given(profiles)
def test_shares_add_up_and_nothing_beats_its_length(profile: Profile) -> None:
    assert sum(stretches(profile).values()) == pytest.approx(1, abs=1e-3)
    per_k = [round_tokens(profile, k) for k in range(1, 7)]
    assert per_k == sorted(per_k)
    assert all(1 <= tokens <= k + 1 for k, tokens in enumerate(per_k, 1))
    for k in range(1, 7):
        assert 1 <= num_tokens(profile) / num_steps_at(profile, k) <= k + 1
        assert 0 <= drafted_per_step(profile, k) <= k + 1e-9


def test_at_its_own_length_a_profile_is_what_was_counted() -> None:
    profile = geometric(0.7, 5, rounds=1000)
    assert num_steps_at(profile, 5) == pytest.approx(1000, rel=0.01)
    assert drafted_per_step(profile, 5) == 5


def test_a_profile_from_counts() -> None:
    """10 rounds: 4 accepted none, 3 one, 3 two; 5 steps had no draft."""
    counts = AcceptanceCounts(10, 20, 9, accepted_per_position=(6, 3))
    profile = profile_of(counts, 2, num_tokens=10 + 9 + 5 + 2, num_texts=2)
    assert profile == Profile(2, (4, 3, 3), 5)
    assert num_tokens(profile) == 24
    assert drafted_per_step(profile, 2) == pytest.approx(20 / 15)
    short = AcceptanceCounts(10, 15, 9, accepted_per_position=(6, 3))
    assert drafted_per_step(profile_of(short, 2, 26, 2), 2) == pytest.approx(1)  # type: ignore[arg-type]
    assert profile_of(AcceptanceCounts(0, 20, 9), 2, 50, 2) is None
    assert profile_of(AcceptanceCounts(10, 20, 9), 2, 50, 2) is None


def test_a_curve_goes_through_what_is_known() -> None:
    assert Curve({8: 1.8}).at(0) == 1
    assert Curve({8: 1.8}).at(4) == pytest.approx(1.4)
    assert Curve({2: 1.1, 8: 1.8}).at(5) == pytest.approx(1.45)
    told = Curve({8: 2.3}, lambda k: 1.0 if k < 4 else 1.5)  # 0.1 for each draft token
    assert [told.at(k) for k in (1, 3, 4, 8)] == pytest.approx([1.1, 1.3, 1.9, 2.3])


def test_no_step_is_quicker_than_a_plain_one() -> None:
    assert Curve({8: 0.7}).at(4) == 1
