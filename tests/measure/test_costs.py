from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outdraft.measure.costs import costs_of
from outdraft.records import AcceptanceCounts


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
    found = costs_of(
        AcceptanceCounts(rounds, rounds * k, accepted), after_first + texts, texts, speedup
    )
    assert found is not None
    assert found.k == k
    assert found.round == pytest.approx(cost, rel=1e-6)


@pytest.mark.parametrize(
    "counts",
    [
        AcceptanceCounts(0, 40, 30),  # rounds not counted (llama.cpp's answers)
        AcceptanceCounts(0, 0, 0),
        AcceptanceCounts(90, 360, 30),  # more rounds than steps: others were there too
    ],
)
def test_counts_that_say_nothing(counts: AcceptanceCounts) -> None:
    assert costs_of(counts, num_tokens=110, num_texts=10, speedup=1.5) is None


def test_a_speedup_beyond_what_was_accepted_is_no_cost() -> None:
    """20 rounds, 60 undrafted steps: even free rounds would not give so much."""
    assert costs_of(AcceptanceCounts(20, 80, 20), 110, 10, speedup=3.0) is None
