"""Plans stand for as long as it takes to make planning cheap, and not where something changes."""

from __future__ import annotations

from collections.abc import Sequence as Seq

from hypothesis import given
from hypothesis import strategies as st

from outdraft.engine.controller import DraftPlan, Why
from outdraft.engine.controller.repeats import Repeats

FAR = 100  # rounds until somebody is probed


def drafting(ids: Seq[int], k: int = 3, match: int = 0) -> list[DraftPlan]:
    return [DraftPlan(id, "head", k, Why.PAYS, match=match) for id in ids]


def resting(ids: Seq[int]) -> list[DraftPlan]:
    return [DraftPlan(id, None, 0, Why.LOSES) for id in ids]


def slow(rounds: int = 4) -> Repeats:
    """Planning takes so much that plans stand for so many rounds."""
    repeats = Repeats()
    repeats.took((rounds - 0.5) * 0.015 * 0.02, 0.02)
    return repeats


def rounds_of(repeats: Repeats, plans: list[DraftPlan], due: int = FAR) -> int:
    """Rounds that new plans stand for, the first included."""
    repeats.follow(plans, due)
    count = 1
    while repeats.again([each.id for each in plans]) is not None:
        assert repeats.is_on
        count += 1
    assert not repeats.is_on
    return count


@given(st.floats(1e-6, 0.01), st.floats(0.001, 0.2))
def test_planning_takes_its_share_or_plans_stand_longest(planning: float, seconds: float) -> None:
    repeats = Repeats()
    repeats.took(planning, seconds)
    rounds = rounds_of(repeats, drafting([1, 2]))
    assert 1 <= rounds <= 8
    assert rounds == 8 or planning <= 0.015 * seconds * rounds * (1 + 1e-9)
    assert rounds == 1 or planning > 0.015 * seconds * (rounds - 1)


def test_without_drafts_they_stand_twice_as_long_but_not_over_a_probe() -> None:
    assert rounds_of(slow(3), drafting([1])) == 3
    assert rounds_of(slow(3), resting([1])) == 6
    assert rounds_of(slow(6), resting([1])) == 8
    assert rounds_of(slow(3), resting([1]), due=2) == 2
    assert rounds_of(slow(3), resting([1]), due=-5) == 1


def test_a_probe_is_made_once() -> None:
    repeats = slow()
    repeats.follow([DraftPlan(1, "head", 1, Why.PROBE), *drafting([2])], FAR)
    plans = repeats.again([1, 2])
    assert plans is not None
    assert [each.k for each in plans] == [0, 3]


def test_a_few_that_are_new_get_what_all_get() -> None:
    repeats = slow()
    repeats.follow(drafting([1, 2, 3]), FAR)
    plans = repeats.again([2, 3, 4])
    assert plans is not None
    assert [(each.id, each.proposer, each.k) for each in plans] == [
        (2, "head", 3),
        (3, "head", 3),
        (4, "head", 3),
    ]
    for mixed in ([*drafting([1, 2]), *resting([3])], drafting([1, 2, 3], match=4)):
        repeats.follow(mixed, FAR)
        plans = repeats.again([2, 3, 4])
        assert plans is not None
        assert plans[-1].k == 0


def test_where_half_are_new_there_are_new_plans() -> None:
    repeats = slow()
    repeats.follow(drafting([1, 2]), FAR)
    assert repeats.again([2, 3]) is None
    repeats.follow(resting([1]), FAR)
    assert repeats.again([2]) is None


def test_where_most_have_left_there_are_new_plans() -> None:
    repeats = slow()
    repeats.follow(drafting(range(16)), FAR)
    assert repeats.again(range(8)) is not None
    assert repeats.again(range(7)) is None


def test_two_rounds_without_a_right_guess_are_the_end() -> None:
    repeats = slow(8)
    repeats.follow(drafting([1]), FAR)
    for accepted in (0, 2, 0):
        assert repeats.again([1]) is not None
        repeats.count(3, accepted)
    assert repeats.again([1]) is not None
    repeats.count(3, 0)
    assert repeats.again([1]) is None
