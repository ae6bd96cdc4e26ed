"""Plans stand for some rounds where nothing changes, and not where something does."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import pytest

from outdraft.engine.controller import DraftPlan, Why
from outdraft.engine.controller.repeats import Repeats

FAR = 100  # rounds until somebody is probed


def drafting(ids: Seq[int], k: int = 3, proposer: str = "head") -> list[DraftPlan]:
    return [DraftPlan(id, proposer, k, Why.PAYS) for id in ids]


def resting(ids: Seq[int]) -> list[DraftPlan]:
    return [DraftPlan(id, None, 0, Why.LOSES) for id in ids]


def rounds_of(repeats: Repeats, plans: list[DraftPlan], times: int, due: int = FAR) -> list[int]:
    """Rounds for which each of the same plans stands."""
    counts = []
    for _ in range(times):
        repeats.follow(plans, "head", due)
        count = 0
        while repeats.again([each.id for each in plans]) is not None:
            assert repeats.is_on
            count += 1
        assert not repeats.is_on
        counts.append(count)
    return counts


def test_rests_get_longer_up_to_a_limit() -> None:
    assert rounds_of(Repeats(), resting([1, 2]), 7) == [0, 1, 2, 3, 4, 4, 4]


def test_drafts_are_repeated_after_a_while() -> None:
    assert rounds_of(Repeats(), drafting([1, 2]), 9) == [0, 0, 1, 1, 2, 2, 3, 3, 3]


def test_nobody_rests_over_a_probe() -> None:
    repeats = Repeats()
    rounds_of(repeats, resting([1]), 8)
    assert rounds_of(repeats, resting([1]), 1, due=3) == [2]
    assert rounds_of(repeats, resting([1]), 1, due=-5) == [0]


@pytest.mark.parametrize(
    "other",
    [
        drafting([1, 2], proposer="ngram"),
        [DraftPlan(1, "head", 1, Why.PROBE), *resting([2])],
        drafting([1, 2], k=6),
        resting([1, 2]),
    ],
    ids=["looked up", "probed", "longer", "none"],
)
def test_other_plans_are_not_repeated(other: list[DraftPlan]) -> None:
    repeats = Repeats()
    rounds_of(repeats, drafting([1, 2]), 9)
    assert rounds_of(repeats, other, 1) == [0]


def test_who_is_new_gets_a_plan_or_waits_while_nobody_drafts() -> None:
    repeats = Repeats()
    rounds_of(repeats, drafting([1, 2, 3]), 8)
    repeats.follow(drafting([1, 2, 3]), "head", FAR)
    assert repeats.again([1, 2, 3, 4]) is None
    rounds_of(repeats, resting([1, 2, 3]), 8)
    repeats.follow(resting([1, 2, 3]), "head", FAR)
    plans = repeats.again([2, 3, 4])
    assert plans is not None
    assert [(each.id, each.k) for each in plans] == [(2, 0), (3, 0), (4, 0)]
    assert repeats.again([3, 7]) is None


def test_an_end_is_an_end() -> None:
    repeats = Repeats()
    rounds_of(repeats, drafting([1]), 8)
    repeats.follow(drafting([1]), "head", FAR)
    repeats.end()
    assert repeats.again([1]) is None
