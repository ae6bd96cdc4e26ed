"""What speculation is worth: the arithmetic, against decoding counted step by step."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outdraft.goodput import net_benefit, plain_seconds

SECONDS = st.floats(1e-5, 10.0)


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
