"""Whatever happens, losses and probes stay within their accounts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from outdraft.engine.controller.ledger import Ledger

PLAIN = 0.01


@given(st.lists(st.tuples(st.floats(1, 2), st.floats(1, 3)), min_size=50, max_size=300))
@settings(deadline=None)
def test_losses_are_bounded(rounds: list[tuple[float, float]]) -> None:
    """Rounds of a cost and tokens, in plain steps, as long as drafts are not held back."""
    ledger, lost, steps = Ledger(), 0.0, 0.0
    for cost, tokens in rounds:
        if ledger.is_held_back:
            cost, tokens = 1.0, 1.0
        ledger.settle(PLAIN, cost * PLAIN, tokens)
        lost, steps = lost + cost - tokens, steps + cost
        # The allowance, a round beyond it, and a loan and a round after each wait
        assert lost <= 7 + (0.003 + 2 / 128) * steps + 1e-9


def fail(ledger: Ledger) -> int:
    """Drafts lose until they are held back; for how many rounds."""
    while not ledger.is_held_back:
        ledger.settle(PLAIN, 1.5 * PLAIN, 1.0)
    rounds = 0
    while ledger.is_held_back:
        ledger.settle(PLAIN, PLAIN, 1.0)
        rounds += 1
    return rounds


def test_trials_that_fail_become_rare() -> None:
    ledger = Ledger()
    assert [fail(ledger) for _ in range(4)] == [128, 256, 256, 256]


def test_after_a_trial_that_wins_waits_are_short_again() -> None:
    ledger = Ledger()
    for _ in range(4):
        fail(ledger)
    for _ in range(30):
        ledger.settle(PLAIN, PLAIN, 2.0)
    assert fail(ledger) == 128


def test_what_is_read_first_is_paid_by_what_follows() -> None:
    """A head that reads for three steps, and then gains a quarter of a step in each round."""
    ledger, most = Ledger(), 20
    for round_ in range(10 * most):
        reading = 0.0 if round_ % most else 3 * PLAIN
        ledger.settle(PLAIN, 1.1 * PLAIN + reading, 1.35, catch_up=reading)
        assert not ledger.is_held_back
    while not ledger.is_held_back:  # what does not pay for its reading is stopped
        ledger.settle(PLAIN, 1.1 * PLAIN + 3 * PLAIN, 1.35, catch_up=3 * PLAIN)


@given(st.lists(st.floats(0, 0.02), min_size=200, max_size=200))
@settings(deadline=None, max_examples=20)
def test_probes_take_one_percent(prices: list[float]) -> None:
    ledger, paid = Ledger(), 0.0
    for price in prices:
        if price <= ledger.for_probes:
            ledger.pay_probes(price)
            paid += price
        ledger.settle(PLAIN, PLAIN, 1.0)
    assert paid <= 0.01 * len(prices) * PLAIN + 1e-9
