from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outdraft.watch.advice import AdviceRules, AdviceState, Seen, advise, wanted_of
from outdraft.watch.findings import Action, Benefit, Source

RULES = AdviceRules(dwell_s=600.0, first_dwell_s=20.0, gpu_hour_cost=4.0)
LOOK_S = 5.0


def benefit(estimate: float, half: float = 0.05, part: str = "") -> Benefit:
    low, high = estimate - half, estimate + half
    return Benefit(Source.CANARY, estimate, low, high, 0.0, 1.0, "assumed", part=part)


def seen(estimate: float | None, half: float = 0.05, **more: object) -> Seen:
    found = None if estimate is None else benefit(estimate, half)
    return replace(Seen(found, tokens_per_s=100.0), **more)  # type: ignore[arg-type]


def follow(
    stream: list[Seen], state: AdviceState | None = None, begin: float = 0.0
) -> list[AdviceState]:
    state = state or AdviceState()
    states = []
    for at, each in enumerate(stream):
        state = advise(state, each, begin + LOOK_S * at, "a", RULES)
        states.append(state)
    return states


def changes_of(states: list[AdviceState]) -> list[tuple[float, str]]:
    found: list[tuple[float, str]] = []
    for at, state in enumerate(states):
        words = state.standing.words if state.standing else ""
        if words and (not found or found[-1][1] != words):
            found.append((LOOK_S * at, words))
    return found


def test_the_first_clear_answer_needs_to_hold_for_a_moment() -> None:
    states = follow([seen(0.8)] * 10)
    assert changes_of(states) == [(20.0, "TURN OFF")]
    assert follow([seen(1.0)] * 500)[-1].standing is None


def test_a_change_is_taken_up_after_the_dwell_time() -> None:
    states = follow([seen(1.5)] * 100 + [seen(0.8)] * 200)
    assert changes_of(states) == [(20.0, "KEEP"), (500.0 + 600.0, "TURN OFF")]
    standing = states[-1].standing
    assert standing is not None
    assert standing.since == 1100.0
    assert standing.benefit == benefit(0.8)


def test_unclear_moments_do_not_stop_a_change_and_a_clear_contradiction_does() -> None:
    mixed = [seen(0.8), seen(1.0), seen(None)] * 100
    assert changes_of(follow([seen(1.5)] * 10 + mixed))[-1] == (50.0 + 600.0, "TURN OFF")
    doubted = ([seen(0.8)] * 60 + [seen(1.5)]) * 10
    assert changes_of(follow([seen(1.5)] * 10 + doubted)) == [(20.0, "KEEP")]
    silent = ([seen(0.8)] * 60 + [seen(None)] * 60) * 10  # unclear for longer than the grace
    assert changes_of(follow([seen(1.5)] * 10 + silent)) == [(20.0, "KEEP")]


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.floats(0.0, 0.3), st.floats(0.01, 0.2), st.floats(0.9, 0.999))
def test_it_never_flaps(seed: int, swing: float, half: float, stay: float) -> None:
    """Benefits that wander around break-even, slowly or quickly, with all kinds of answers."""
    rng = random.Random(seed)
    level, stream = 1.0, []
    for _ in range(1500):
        level = 1 + stay * (level - 1) + rng.gauss(0, swing * (1 - stay**2) ** 0.5)
        level = min(max(level, 0.3), 3.0)
        by_k = {k: benefit(level * (1 + 0.05 * (4 - k)), half) for k in range(1, 5)}
        parts = (benefit(level * 0.8, half, "8+ at a time"), benefit(level * 1.2, half, "1 to 7"))
        stream.append(
            seen(
                level,
                half,
                by_k=by_k if rng.random() < 0.5 else {},
                parts=parts if rng.random() < 0.3 else (),
            )
        )
    times = [at for at, _ in changes_of(follow(stream))]
    assert all(after - before >= RULES.dwell_s for before, after in pairwise(times))


@settings(max_examples=25)
@given(st.integers(0, 10_000))
def test_a_planted_change_is_taken_up_within_a_quarter_more_than_the_dwell(seed: int) -> None:
    rng = random.Random(seed)
    before = [seen(1.3 + rng.gauss(0, 0.05), 0.08) for _ in range(400)]
    after = [seen(0.75 + rng.gauss(0, 0.05), 0.08) for _ in range(400)]
    times = changes_of(follow(before + after))
    assert [words for _, words in times] == ["KEEP", "TURN OFF"]
    assert times[1][0] - 2000.0 <= 1.25 * RULES.dwell_s


def test_a_shorter_draft_that_is_clearly_better_is_wanted() -> None:
    by_k = {2: benefit(1.4), 3: benefit(1.38), 6: benefit(1.1)}
    wanted = wanted_of(seen(1.1, by_k=by_k))
    assert wanted is not None
    assert (wanted.action, wanted.k) == (Action.LOWER_K, 2)
    assert wanted.gain == pytest.approx(1.4 / 1.1)
    standing = follow([seen(1.1, by_k=by_k)] * 10)[-1].standing
    nearly = {2: benefit(1.38), 3: benefit(1.4), 6: benefit(1.1)}
    again = wanted_of(seen(1.1, by_k=nearly), standing)
    assert again is not None
    assert again.k == 2  # 3 is not clearly better than what was advised
    alike = {2: benefit(1.15), 6: benefit(1.1)}
    kept = wanted_of(seen(1.1, by_k=alike))
    assert kept is not None
    assert kept.action is Action.KEEP
    losing = wanted_of(seen(0.8, by_k={2: benefit(1.2), 6: benefit(0.8)}))
    assert losing is not None
    assert (losing.action, losing.k) == (Action.LOWER_K, 2)


def test_parts_that_lose_are_turned_off_where_others_gain() -> None:
    parts = (benefit(1.4, part="1 at a time"), benefit(0.8, part="9-16 at a time"))
    standing = follow([seen(1.2, parts=parts)] * 10)[-1].standing
    assert standing is not None
    assert standing.words == "TURN OFF FOR 9-16 at a time"
    more = (*parts, benefit(0.9, part="5-8 at a time"))
    wanted = wanted_of(seen(1.1, parts=more), standing)
    assert wanted is not None
    assert wanted.part == "9-16 at a time"
    only_losing = wanted_of(seen(0.8, parts=parts[1:]))
    assert only_losing is not None
    assert only_losing.action is Action.TURN_OFF


def test_what_the_benefit_is_about_is_named_where_it_is_not_all() -> None:
    part = replace(benefit(1.5), share=0.7)
    [reason] = [each.reason for each in (wanted_of(Seen(part)),) if each is not None]
    assert reason.endswith("by canary slices, in 70% of the time of texts")
    standing = follow([seen(1.5)] * 10)[-1]
    little = Seen(replace(part, low=None, high=None, share=0.02))
    unclear = advise(standing, little, 60.0, "a", RULES).standing
    assert unclear is not None
    assert "in 2% of the time of texts" in unclear.reason


def test_what_not_following_it_costs() -> None:
    off = follow([seen(0.8, busy_servers=2.0)] * 10)[-1].standing
    assert off is not None
    assert off.lost_tokens_per_hour == pytest.approx(3600 * 100 * 0.25)
    assert off.lost_gpu_seconds_per_hour == pytest.approx(2 * 3600 * 0.2)
    assert off.lost_money_per_hour == pytest.approx(2 * 0.2 * 4.0)
    keep = follow([seen(2.0)] * 10)[-1].standing
    assert keep is not None
    assert keep.lost_tokens_per_hour == pytest.approx(3600 * 100 / 2)
    assert keep.lost_gpu_seconds_per_hour == pytest.approx(3600)


def test_without_speculation_nothing_is_advised() -> None:
    states = follow([seen(0.8)] * 10 + [seen(None, speculates=False)] * 500)
    assert changes_of(states) == [(20.0, "TURN OFF")]
    assert states[9].standing is not None
    assert {state.standing for state in states[10:]} == {None}


def test_what_stands_without_evidence_costs_nothing_and_says_that_it_is_not_clear() -> None:
    states = follow([seen(1.76)] * 10 + [seen(1.0, tokens_per_s=5.0)] * 50)
    standing = states[-1].standing
    assert standing is not None
    assert standing.action is Action.KEEP
    assert "not clear now (1.00 times" in standing.reason
    assert standing.lost_tokens_per_hour is None
    assert standing.lost_money_per_hour is None
    silent = follow([seen(None)], states[-1], begin=400.0)[-1].standing
    assert silent is not None
    assert silent.benefit is None


def test_turning_off_for_a_part_costs_what_the_part_has() -> None:
    parts = (
        replace(benefit(0.5, part="9-16 at a time"), share=0.02),
        replace(benefit(1.5, part="1 at a time"), share=0.98),
    )
    standing = follow([seen(1.4, parts=parts)] * 10)[-1].standing
    assert standing is not None
    assert standing.words == "TURN OFF FOR 9-16 at a time"
    assert standing.lost_tokens_per_hour == pytest.approx(3600 * 100 * 0.02)
    unknown = tuple(replace(each, share=None) for each in parts)
    standing = follow([seen(1.4, parts=unknown)] * 10)[-1].standing
    assert standing is not None
    assert standing.lost_tokens_per_hour is None


def test_turned_off_it_is_turned_on_when_drafts_would_pay() -> None:
    off = follow([seen(0.8)] * 10 + [seen(0.8, is_stopped=True)] * 200)
    assert changes_of(off) == [(20.0, "TURN OFF")]
    assert off[-1].standing is not None
    assert off[-1].standing.reason.startswith("turned off, drafts would make it 0.80 times")
    assert off[-1].standing.lost_tokens_per_hour is None
    unclear = follow([seen(1.0, is_stopped=True)] * 400, off[-1], begin=1050.0)
    assert changes_of(unclear) == [(0.0, "TURN OFF")]
    on = follow([seen(1.5, is_stopped=True)] * 200, off[-1], begin=1050.0)
    assert changes_of(on) == [(0.0, "TURN OFF"), (600.0, "TURN ON")]
    assert on[-1].standing is not None
    assert on[-1].standing.lost_tokens_per_hour == pytest.approx(3600 * 100 * 0.5)


def test_keeping_it_on_and_turning_it_on_are_one_opinion() -> None:
    states = follow([seen(1.5, is_stopped=True)] * 10 + [seen(1.5)] * 10)
    assert changes_of(states) == [(20.0, "TURN ON"), (50.0, "KEEP")]
    back = follow([seen(1.5, is_stopped=True)], states[-1], begin=100.0)
    assert changes_of(back) == [(0.0, "TURN ON")]


def test_a_part_that_is_off_and_would_pay_is_turned_on() -> None:
    off = replace(benefit(0.8, part="9-16 at a time"), share=0.5, is_stopped=True)
    others = benefit(1.4, part="1 at a time")
    still = wanted_of(seen(1.2, parts=(off, others)))
    assert still is not None
    assert (still.action, still.part) == (Action.TURN_OFF_FOR, "9-16 at a time")
    pays = replace(off, estimate=1.2, low=1.1, high=1.3)
    standing = follow([seen(1.2, parts=(pays, others))] * 10)[-1].standing
    assert standing is not None
    assert standing.words == "TURN ON FOR 9-16 at a time"
    assert standing.lost_tokens_per_hour == pytest.approx(3600 * 100 * 0.5 * 0.2)
    unclear = seen(1.2, parts=(replace(pays, low=0.9), others))
    off_for = follow([seen(1.2, parts=(off, others))] * 10)[-1]
    assert changes_of(follow([unclear] * 400, off_for)) == [(0.0, "TURN OFF FOR 9-16 at a time")]
    nobody_advised = wanted_of(unclear)
    assert nobody_advised is not None
    assert nobody_advised.action is Action.KEEP


def test_parts_that_stand_together_stay_together() -> None:
    parts = tuple(benefit(0.8, part=f"{load} at a time") for load in ("3-4", "5-8", "9-16"))
    pays = benefit(1.4, part="1 at a time")
    standing = follow([seen(1.2, parts=(*parts[:2], pays))] * 10)[-1].standing
    assert standing is not None
    assert standing.part == "3-4 at a time, 5-8 at a time"
    wanted = wanted_of(seen(1.2, parts=(parts[2], parts[1], parts[0], pays)), standing)
    assert wanted is not None
    assert wanted.part == standing.part


def test_temperatures_that_lose_are_turned_off_where_others_gain() -> None:
    hot = replace(benefit(0.8, part="temperature 1+"), share=0.5)
    cold = replace(benefit(1.5, part="temperature 0"), share=0.9)
    standing = follow([seen(1.1, parts=(hot, cold))] * 10)[-1].standing
    assert standing is not None
    assert standing.words == "TURN OFF FOR temperature 1+"
    assert standing.lost_tokens_per_hour == pytest.approx(3600 * 100 * 0.5 * 0.25)
    assert wanted_of(seen(1.1, parts=(replace(hot, high=1.1), cold))) == wanted_of(seen(1.1))
    tried = replace(hot, estimate=1.2, low=1.1, high=1.3, is_stopped=True)
    back = wanted_of(seen(1.1, parts=(tried, cold)), standing)
    assert back is not None
    assert (back.action, back.part) == (Action.TURN_ON, "temperature 1+")


def test_loads_and_temperatures_are_not_mixed_and_do_not_alternate() -> None:
    loads = (
        replace(benefit(0.9, part="9-16 at a time"), share=0.2),
        replace(benefit(1.4, part="1 at a time"), share=0.8),
    )
    bands = (
        replace(benefit(0.7, part="temperature 1+"), share=0.5),
        replace(benefit(1.4, part="temperature 0"), share=0.9),
    )
    assert wanted_of(seen(1.1, parts=(*loads, bands[0]))) == wanted_of(seen(1.1, parts=loads))
    wanted = wanted_of(seen(1.1, parts=(*loads, *bands)))
    assert wanted is not None
    assert wanted.part == "temperature 1+"  # it gains more
    standing = follow([seen(1.1, parts=loads)] * 10)[-1].standing
    kept = wanted_of(seen(1.1, parts=(*loads, *bands)), standing)
    assert kept is not None
    assert kept.part == "9-16 at a time"
