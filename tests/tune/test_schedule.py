from __future__ import annotations

from typing import Any

import pytest

from outdraft.speculation import Speculation
from outdraft.stats import Ratio
from outdraft.tune.results import BEST, DROPPED, FAILED, PREDICTED, RACED, ArmResult, LoadResult
from outdraft.tune.schedule import schedule_of

ARMS = {f"ngram k={k}": Speculation("ngram", k=k) for k in (2, 4, 8)}


def arm(k: int, state: str, measured: float | None = None, reach: float | None = 0.1) -> ArmResult:
    """`reach`: of the interval, to either side; None: there is none."""
    ratio = None
    if measured is not None:
        ends = (None, None) if reach is None else (measured - reach, measured + reach)
        ratio = Ratio(measured, *ends, 0.98, 40, 10)
    return ArmResult(f"ngram k={k}", {}, state, predicted=1.7, measured=ratio)


def load(
    concurrency: int, best: str | None, *arms: ArmResult, decision: str | None = None
) -> LoadResult:
    verdict: Any = None if decision is None else {"decision": decision}
    return LoadResult(f"concurrency {concurrency}", concurrency, None, arms, best, verdict)


def k_of(*arms: ArmResult, best: str | None = None, decision: str | None = None) -> int:
    ((_, _, k),) = schedule_of([load(1, best, *arms, decision=decision)], "ngram", ARMS)
    return k


def test_the_change_is_half_way_between_two_loads() -> None:
    first = load(1, "ngram k=4", arm(4, BEST, 1.5))
    many = load(16, None, arm(4, FAILED, 1.6), arm(8, PREDICTED), arm(2, RACED, 0.9))
    assert schedule_of([many, first], "ngram", ARMS) == ((1, 4, 4), (5, 4096, 0))
    silent = LoadResult("concurrency 16", 16, None, (), None, None)
    assert schedule_of([first, silent], "ngram", ARMS) == ((1, 4096, 4),)


@pytest.mark.parametrize(
    ("found", "decision", "k"),
    [
        (arm(4, BEST, 1.05, reach=0.1), None, 0),  # the interval holds 1
        (arm(4, BEST, 1.05, reach=0.04), None, 4),
        (arm(4, BEST, 1.5, reach=None), None, 0),  # too few blocks for one
        (arm(4, BEST, 1.05, reach=0.1), "SHIP", 4),
        (arm(4, BEST, 1.05, reach=0.1), "INCONCLUSIVE", 0),
        (arm(4, PREDICTED), None, 0),  # nobody has seen it
        (arm(4, DROPPED, 1.5), None, 4),  # that it is not the best says nothing against it
    ],
)
def test_off_unless_the_win_is_proven(found: ArmResult, decision: str | None, k: int) -> None:
    assert k_of(found, best=found.name, decision=decision) == k


def test_the_shorter_of_two_that_are_not_told_apart() -> None:
    best = arm(8, BEST, 1.60, reach=0.05)
    assert k_of(best, arm(4, RACED, 1.57, reach=0.05), best="ngram k=8") == 4
    assert k_of(best, arm(4, RACED, 1.50, reach=0.05), best="ngram k=8") == 8
    assert k_of(best, arm(4, DROPPED, 1.57, reach=0.05), best="ngram k=8") == 4
    assert k_of(best, arm(4, RACED, 1.57, reach=0.70), best="ngram k=8") == 8, "it may lose"


def test_where_another_proposer_won() -> None:
    assert k_of(arm(8, PREDICTED), arm(2, RACED, 1.2), best="suffix k=2") == 2
