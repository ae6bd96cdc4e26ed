"""The controller with planted acceptance, round by round."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from outdraft.engine.controller import (
    Candidate,
    Controller,
    DraftPlan,
    LookupDraft,
    Outcome,
    StepTimes,
    Why,
)
from outdraft.engine.native.library import library
from outdraft.step_costs import ProposerCosts, RoundCosts

if library() is None:
    pytest.skip("the library is not compiled here", allow_module_level=True)

HEAD = ProposerCosts(0.0003, 0.0003, 0.00005)
FLAT = RoundCosts({1: 0.010, 64: 0.012, 512: 0.040}, proposers={"head": HEAD})
STEEP = RoundCosts({1: 0.001, 64: 0.064, 512: 0.512}, proposers={"head": HEAD})


def candidates(num: int, **fields: object) -> list[Candidate]:
    return [Candidate(id, 0.0, 200, 50, **fields) for id in range(num)]  # type: ignore[arg-type]


Rate = Callable[[DraftPlan, int], float]  # of a plan's sequence in a round


def drive(
    controller: Controller,
    rounds: int,
    batch: list[Candidate],
    rate: Rate,
    costs: RoundCosts,
    seed: int = 0,
    *,
    is_graded: bool = True,
    prompts: int = 0,
) -> list[list[DraftPlan]]:
    """Plays rounds. Not `is_graded`: how sure the head is says nothing. `prompts`: tokens of other
    texts that are read in each."""
    chance, history = np.random.default_rng(seed), []
    for now in range(rounds):
        right, grades = {}, {}
        for wish in controller.wish(batch, other_tokens=prompts):
            if wish.k:
                plan = DraftPlan(wish.id, "head", wish.k, Why.PAYS)
                right[wish.id] = (chance.random(wish.k) < rate(plan, now)).tolist()
                grades[wish.id] = [
                    int(chance.integers(3 if each else 0, 8 if each else 5) if is_graded else 4)
                    for each in right[wish.id]
                ]
        plans = controller.plan(grades)
        outcomes = []
        for plan in plans:
            own = right[plan.id][: plan.k] if plan.proposer == "head" else []
            own = own or (chance.random(plan.k) < rate(plan, now)).tolist()
            accepted = own.index(False) if False in own else plan.k
            outcomes.append(Outcome(plan.id, plan.proposer, plan.k, accepted))
        written = [len(each) for each in grades.values()]
        drafting = costs.drafting("head", max(written, default=0), sum(written))
        tokens = len(batch) + prompts + sum(plan.k for plan in plans)
        seconds = costs.verification(tokens, len(batch), 200)
        controller.observe(outcomes, StepTimes(seconds, {"head": drafting} if written else {}))
        history.append(plans)
    return history


def planned(
    controller: Controller, batch: list[Candidate], other_tokens: int = 0
) -> list[DraftPlan]:
    """Of a head that is rather sure."""
    wishes = controller.wish(batch, other_tokens=other_tokens)
    return controller.plan({each.id: [5] * each.k for each in wishes if each.k})


def mean_k(history: list[list[DraftPlan]], id: int = 0) -> float:
    return float(np.mean([plan.k for plans in history for plan in plans if plan.id == id]))


def test_the_same_again() -> None:
    first, second = (
        drive(Controller(FLAT), 60, candidates(3), lambda plan, now: 0.5 + 0.2 * plan.id, FLAT)
        for _ in range(2)
    )
    assert first == second


@pytest.mark.parametrize("is_graded", [True, False])
def test_drafts_where_they_pay_and_not_where_they_do_not(is_graded: bool) -> None:
    good, bad = (
        drive(Controller(costs), 100, candidates(num), rate, costs, is_graded=is_graded)
        for costs, num, rate in (
            (FLAT, 2, lambda plan, now: 0.9), (STEEP, 8, lambda plan, now: 0.3),
        )
    )  # fmt: skip
    assert mean_k(good[20:]) > 3
    assert mean_k(bad[20:]) < 0.1


def test_each_sequence_has_its_own_length() -> None:
    rates = [0.9, 0.05]
    history = drive(Controller(FLAT), 120, candidates(2), lambda plan, now: rates[plan.id], FLAT)
    assert mean_k(history[30:], 0) > 5
    assert mean_k(history[30:], 1) < 2.5  # a token costs little on this machine


def test_limits_are_kept() -> None:
    batch = [
        Candidate(0, 0.0, 200, 0, (LookupDraft("ngram", 8, 12),)),
        Candidate(1, 0.0, 200, 2),
        Candidate(2, 0.0, 200, 50, (LookupDraft("ngram", 3, 12),)),
    ]
    history = drive(Controller(FLAT), 40, batch, lambda plan, now: 0.95, FLAT)
    for nothing, short, found in history:
        assert (nothing.proposer, nothing.k, nothing.why) == (None, 0, Why.NO_ROOM)
        assert short.k <= 2
        assert found.k <= (3 if found.proposer == "ngram" else 8)


def test_without_a_draft_there_are_lookups_alone() -> None:
    costs = RoundCosts({1: 0.010, 64: 0.012})
    batch = [Candidate(0, 0.0, 200, 50), Candidate(1, 0.0, 200, 50, (LookupDraft("suffix", 6, 9),))]
    history = drive(Controller(costs), 20, batch, lambda plan, now: 0.9, costs)
    assert history[-1][0].why == Why.NO_PROPOSER
    assert (history[-1][1].proposer, history[-1][1].k) == ("suffix", 6)


def test_a_long_match_goes_before_the_draft() -> None:
    batch = candidates(1, lookups=(LookupDraft("ngram", 12, 10),))
    rates = {"ngram": 0.97, "head": 0.6}
    history = drive(
        Controller(FLAT), 60, batch, lambda plan, now: rates[plan.proposer or "head"], FLAT
    )
    assert [plans[0].proposer for plans in history[30:]].count("ngram") > 25


def test_matches_that_lead_astray_are_left() -> None:
    batch = candidates(1, lookups=(LookupDraft("ngram", 12, 10),))
    rates = {"ngram": 0.05, "head": 0.8}
    history = drive(
        Controller(FLAT), 80, batch, lambda plan, now: rates[plan.proposer or "head"], FLAT
    )
    assert [plans[0].proposer for plans in history[40:]].count("head") > 30


def test_only_what_is_sure_enough_is_verified() -> None:
    """Eight texts at a price at which half of all guesses lose."""
    cheap = ProposerCosts(0.00001, 0.00001, 0.0)
    steep = RoundCosts({1: 0.010, 8: 0.010, 16: 0.018, 64: 0.064}, proposers={"head": cheap})
    batch = candidates(8, left=400)
    graded, blind = (
        drive(Controller(steep), 150, batch, lambda plan, now: 0.6, steep, is_graded=each)
        for each in (True, False)
    )

    def gained(history: list[list[DraftPlan]]) -> float:
        return float(np.mean([sum(plan.k for plan in plans) for plans in history[30:]]))

    assert 2 < gained(graded) < 8 * 2
    assert gained(blind) < gained(graded)


def test_a_draft_is_told_where_to_stop() -> None:
    controller = Controller(FLAT)
    drive(controller, 60, candidates(1), lambda plan, now: 0.7, FLAT)
    [wish] = controller.wish(candidates(1))
    assert wish.trust is not None
    assert wish.trust.chances[7] > 0.9 > 0.5 > wish.trust.chances[0]
    assert 0 < wish.trust.floor < 0.2  # a token costs little on this machine


def test_after_a_round_without_drafts_it_rests() -> None:
    """As long as the texts are the same, and not for long."""
    controller = Controller(STEEP)
    drive(controller, 60, candidates(8), lambda plan, now: 0.05, STEEP)
    while sum(plan.k for plan in planned(controller, candidates(8))):
        pass
    rested = 0
    while controller.may_rest([*range(8)]):
        assert controller._ledger(7).is_held_back or not controller.may_rest([*range(7)])
        controller.rest()
        rested += 1
    assert rested == 3
    planned(controller, candidates(8))
    assert controller.may_rest([*range(8)])


def test_what_many_lose_is_not_held_against_one() -> None:
    controller = Controller(FLAT)
    while not controller._ledger(16).is_held_back:
        controller._ledger(16).settle(0.01, 0.02, 1.0)
    for num, is_held_back in ((15, True), (16, True), (1, False), (4, False)):
        whys = {plan.why for plan in planned(controller, candidates(num))}
        assert (Why.HELD_BACK in whys) == is_held_back


def test_probes_are_few_and_bring_it_back() -> None:
    """Bad for 400 rounds, good from then on."""
    controller = Controller(FLAT)
    history = drive(
        controller, 600, candidates(1), lambda plan, now: 0.02 if now < 400 else 0.95, FLAT
    )
    bad = [plans[0] for plans in history[50:400]]
    cost = FLAT.drafting("head", 1, 1) + FLAT.verification(2, 1, 200) - 0.010
    spent = sum(cost for plan in bad if plan.why == Why.PROBE)
    assert 0 < spent <= 0.0101 * len(bad) * 0.0103
    assert mean_k(history[60:400]) < 0.3
    assert mean_k(history[460:]) > 3


def test_who_is_late_goes_first() -> None:
    """At a price at which not all get drafts."""
    steep = RoundCosts({1: 0.010, 4: 0.0105, 8: 0.018, 64: 0.12}, proposers={"head": HEAD})
    late = [
        Candidate(0, 0.0, 200, 50, lateness=3.0),
        *(Candidate(id, 0.0, 200, 50, lateness=0.5) for id in (1, 2, 3)),
    ]
    history = drive(Controller(steep), 100, late, lambda plan, now: 0.8, steep)
    others = np.mean([mean_k(history[30:], id) for id in (1, 2, 3)])
    assert mean_k(history[30:], 0) > others + 0.5


def test_nobody_waits_long_for_the_drafts_of_others() -> None:
    """Two of four texts gain from drafts that cost the others half a step each round."""
    steep = RoundCosts({1: 0.010, 4: 0.010, 16: 0.030, 64: 0.110}, proposers={"head": HEAD})
    rates = [0.9, 0.9, 0.02, 0.02]
    batch = candidates(4, left=400)
    history = drive(Controller(steep), 400, batch, lambda plan, now: rates[plan.id], steep)
    steps = 0.0
    for plans in history:
        lengths = [plan.k for plan in plans]
        seconds = steep.verification(4 + sum(lengths), 4, 200)
        steps += (seconds + steep.drafting("head", max(lengths), sum(lengths))) / 0.010
    # Whoever gets no drafts has one token a round.
    assert steps / 400 < 1.05


@pytest.mark.parametrize("prompts", [0, 4096])
def test_who_ends_early_brings_prompts_for_which_others_wait(prompts: int) -> None:
    """Three of four texts gain from drafts that cost next to nothing. Where reading prompts takes
    most of the time, they would gain little of it, and the fourth would lose much."""
    rates = [0.95, 0.95, 0.95, 0.02]
    batch = candidates(4, left=400)
    history = drive(
        Controller(FLAT), 300, batch, lambda plan, now: rates[plan.id], FLAT, prompts=prompts
    )
    drafted = np.mean([mean_k(history[100:], id) for id in range(3)])
    assert drafted < 0.2 if prompts else drafted > 3


def waited_long(controller: Controller, costs: RoundCosts) -> None:
    """Of four texts the last one got nothing, and waited for the drafts of others."""
    rates = [0.9, 0.9, 0.9, 0.02]
    drive(controller, 200, candidates(4, left=400), lambda plan, now: rates[plan.id], costs)


def test_a_text_that_has_to_be_read_leaves_the_drafts_of_others() -> None:
    """However little may be asked of those that waited."""
    head = ProposerCosts(0.0003, 0.0003, 0.00005, catch_up=0.00002)
    costs = RoundCosts({1: 0.010, 4: 0.010, 16: 0.020, 64: 0.070}, proposers={"head": head})
    controller = Controller(costs)
    waited_long(controller, costs)
    batch = candidates(4, left=400)
    before = planned(controller, batch)
    late = Candidate(9, 0.0, 800, 50, behind=800, left=400)
    after = planned(controller, [*batch[:3], late])
    assert sum(plan.k for plan in before[:3]) > 0
    assert sum(plan.k for plan in after[:3]) > 0


def test_who_waited_long_is_not_in_the_way_for_ever() -> None:
    """While all gained much it waited; when they gain little, it may soon wait a little again."""
    steep = RoundCosts({1: 0.010, 4: 0.010, 16: 0.020, 64: 0.070}, proposers={"head": HEAD})
    controller = Controller(steep)
    waited_long(controller, steep)
    slot = controller._texts[3]
    assert controller._slots[slot].lag < 0.03 * (200 * 2 + 96)


def test_a_probe_that_is_too_dear_is_in_nobodys_way() -> None:
    dear = ProposerCosts(0.0003, 0.0003, 0.00005, catch_up=0.001)
    costs = RoundCosts(STEEP.by_tokens, proposers={"head": dear})
    batch = [Candidate(0, 0.0, 2000, 50, behind=2000), Candidate(1, 0.0, 200, 50)]
    history = drive(Controller(costs), 300, batch, lambda plan, now: 0.02, costs)
    assert any(plan.why == Why.PROBE for plans in history for plan in plans if plan.id == 1)


def test_who_holds_others_up_is_told_so() -> None:
    cheap = ProposerCosts(0.00001, 0.00001, 0.0)
    steep = RoundCosts({1: 0.010, 8: 0.010, 16: 0.0175, 64: 0.0625}, proposers={"head": cheap})
    batch = candidates(8, left=400)
    history = drive(
        Controller(steep), 200, batch, lambda plan, now: 0.02 if plan.id else 0.95, steep
    )
    reasons = [[plan.why for plans in history[60:] for plan in plans if plan.id == id]
               for id in (0, 7)]  # fmt: skip
    good, bad = (each.count(Why.HOLDS_UP) for each in reasons)
    assert good > 20
    assert bad < 3


def test_prompts_in_the_step_make_no_draft_cheaper() -> None:
    controller = Controller(STEEP)
    drive(controller, 60, candidates(4), lambda plan, now: 0.3, STEEP)
    plans = planned(controller, candidates(4), other_tokens=256)
    assert sum(plan.k for plan in plans) <= 1  # a probe


def test_a_sequence_that_is_over_leaves_nothing() -> None:
    controller = Controller(FLAT)
    drive(controller, 60, candidates(1), lambda plan, now: 0.02, FLAT)
    assert planned(controller, candidates(1))[0].k <= 1
    controller.release(0)
    controller.release(0)
    controller.release(12345)
    again, never_seen = controller.wish([*candidates(1), Candidate(99, 0.0, 200, 50)])
    assert again.k == never_seen.k


def test_nothing_to_plan() -> None:
    controller = Controller(FLAT)
    assert controller.wish([]) == []
    assert controller.plan({}) == []
    controller.observe([], StepTimes(0.01))


def test_many_sequences_beside_long_prompts() -> None:
    controller = Controller(FLAT)
    batch = candidates(200, lookups=(LookupDraft("ngram", 16, 12),))
    plans = planned(controller, batch, other_tokens=4096)
    assert [plan.id for plan in plans] == list(range(200))


def test_drafts_of_another_proposer_teach_nothing() -> None:
    lengths = []
    for accepted in (0, 8):
        controller = Controller(FLAT)
        [plan] = planned(controller, candidates(1))
        assert plan.proposer == "head"
        controller.observe([Outcome(0, "ngram", 8, accepted)], StepTimes(0.01))
        lengths.append(controller.wish(candidates(1))[0].k)
    assert lengths[0] == lengths[1] > 0


def test_a_text_is_read_only_where_that_can_pay() -> None:
    slow = ProposerCosts(0.0003, 0.0003, 0.00005, catch_up=0.0001)
    costs = RoundCosts(FLAT.by_tokens, proposers={"head": slow})

    def length(**fields: object) -> int:
        return Controller(costs).wish(candidates(1, **fields))[0].k

    assert length(behind=1) > 0
    assert length(behind=1000, left=500) > 0
    assert length(behind=1000, left=4) == 0
    assert length(behind=100_000, left=500) == 0
