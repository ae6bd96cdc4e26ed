"""Costs follow what steps really take, slowly, size by size."""

from __future__ import annotations

import pytest

from outdraft.engine.controller.live_costs import LiveCosts
from outdraft.step_costs import ProposerCosts, RoundCosts

TOLD = RoundCosts(
    {1: 0.010, 8: 0.012, 64: 0.040}, 128, proposers={"head": ProposerCosts(0.001, 0.001, 0.0001)}
)


def seconds(costs: LiveCosts, tokens: int) -> float:
    return float(costs.base[tokens - 1] * costs.factors[tokens - 1])


def test_told_costs_come_first() -> None:
    costs = LiveCosts(TOLD)
    told = [TOLD.verification(tokens, 1, 128) for tokens in (1, 5, 64, 700)]
    assert [seconds(costs, tokens) for tokens in (1, 5, 64, 700)] == pytest.approx(told)


def test_a_machine_that_is_slower_at_every_size() -> None:
    costs = LiveCosts(TOLD)
    for _ in range(60):
        costs.observe(1, seconds(costs, 1), 0.013)
    assert seconds(costs, 1) == pytest.approx(0.013, rel=0.02)
    assert seconds(costs, 64) > 0.044  # nobody measured it: most of the error is taken to be there


def test_sizes_are_told_apart() -> None:
    costs = LiveCosts(TOLD)
    for _ in range(150):
        costs.observe(1, seconds(costs, 1), 0.010)
        costs.observe(8, seconds(costs, 8), 0.015)
    assert seconds(costs, 1) == pytest.approx(0.010, rel=0.02)
    assert seconds(costs, 8) == pytest.approx(0.015, rel=0.02)


def test_a_step_that_was_held_up_changes_little() -> None:
    costs = LiveCosts(TOLD)
    for _ in range(100):
        costs.observe(1, seconds(costs, 1), 0.010)
    costs.observe(1, seconds(costs, 1), 10.0)
    assert seconds(costs, 1) < 0.0103


def test_drafting_has_a_factor_of_its_own() -> None:
    costs = LiveCosts(TOLD)
    for _ in range(100):
        expected = costs.drafting("head").seconds(4, 8)
        costs.observe_drafting("head", expected, 2 * TOLD.drafting("head", 4, 8))
    assert costs.drafting("head").seconds(2, 2) == pytest.approx(
        2 * TOLD.drafting("head", 2, 2), rel=0.05
    )
    assert seconds(costs, 1) == 0.010
