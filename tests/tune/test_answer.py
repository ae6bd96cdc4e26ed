"""The one answer of a tuning run, and its words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from outdraft.decide.texts import Agreement
from outdraft.decide.verdict import DONT_SHIP, INCONCLUSIVE, SHIP, SHIP_FOR, Verdict
from outdraft.speculation import OFF, Speculation
from outdraft.tune.answer import Finding, Recommendation, answer_of, recommended
from outdraft.tune.arm import name_of, proposer_name
from outdraft.tune.results import (
    BASELINE,
    BEST,
    FAILED,
    PREDICTED,
    PROFILED,
    RACED,
    ArmResult,
    FinalPrompts,
    LoadResult,
    Results,
    ScheduleResult,
)
from outdraft.tune.rivals import why_not_higher
from outdraft.tune.schedule import schedule_of
from outdraft.tune.wording import details, headline, loads_text, speedup_text, why_text
from tests.report.sample_results import ratio_about, sample_results

EAGLE, SUFFIX = Speculation("eagle", k=5, draft="head"), Speculation("suffix", k=4)
WHOLE = "SHIP FOR, and the whole wins"


def load(
    size: int, end: str | None, best: Speculation = EAGLE, *, is_open: bool = False
) -> LoadResult:
    """With the decision, or with none: nothing was compared."""
    name = f"{size} requests/s" if is_open else f"concurrency {size}"
    measured, whole = ratio_about(1.5, 0.02, 20), ratio_about(1.3 if end == WHOLE else 0.9, 0.02, 9)
    arm = ArmResult(name_of(best), best, BEST, measured=measured, ratios={"e2e": whole})
    verdict = None
    if end is not None:
        decision = SHIP_FOR if end == WHOLE else end
        parts = (("category code",), ("category chat",)) if decision == SHIP_FOR else ((), ())
        verdict = Verdict(decision, parts[0], (), (), parts[1], end in (SHIP, WHOLE))
    else:
        arm = replace(arm, measured=None, ratios={}, state=PREDICTED)
    others = [ArmResult(name_of(each), each, PREDICTED, predicted=1.1)
              for each in (EAGLE, SUFFIX) if each != best and end is not None]  # fmt: skip
    arms = (ArmResult("off", OFF, BASELINE), arm, *others)
    concurrency, rate = (None, float(size)) if is_open else (size, None)
    best_name = None if end is None else arm.name
    return LoadResult(name, concurrency, rate, arms, best_name, verdict)


def results_of(*loads: LoadResult, main: int = 0, **fields: object) -> Results:
    """With the schedule that follows, as a search makes it."""
    best = loads[main].best_arm
    schedule = () if best is None else schedule_of(loads, proposer_name(best.speculation))
    given = {"schedule": schedule if loads[main].pays_for_all else (), **fields}
    return replace(sample_results(), loads=loads, main_load=loads[main].name, **given)


def ended(*ends: str | None, sizes: tuple[int, ...] = (1, 4, 16)) -> Results:
    return results_of(*(load(size, end) for size, end in zip(sizes, ends, strict=False)))


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ((SHIP, SHIP, DONT_SHIP), "Turn it on up to 8 requests at a time; off above"),
        ((SHIP, DONT_SHIP), "Turn it on up to 2 requests at a time; off above"),
        ((SHIP, INCONCLUSIVE), "Turn it on up to 2 requests at a time; off above"),
        ((SHIP, SHIP_FOR), "Turn it on up to 2 requests at a time; off above"),
        ((SHIP, WHOLE),
         "Turn it on: it pays at 1 and 4 requests at a time; category chat loses by it"),
        ((WHOLE, DONT_SHIP),
         "Turn it on up to 2 requests at a time; off above; category chat loses by it"),
        ((SHIP, None), "Turn it on: it pays at 1 request at a time"),
        ((SHIP,), "Turn it on: it pays at 1 request at a time"),
        ((SHIP, DONT_SHIP, SHIP),
         "Turn it on with 1 to 2 and 9 or more requests at a time; off with 3 to 8"),
        ((DONT_SHIP, SHIP), "Leave it off: it does not pay at 1 request at a time"),
        ((DONT_SHIP, DONT_SHIP), "Leave it off: it does not pay at any load measured"),
        ((INCONCLUSIVE, INCONCLUSIVE), "Not proven either way at any load measured: leave it off"),
        ((INCONCLUSIVE, SHIP), "Not proven either way at 1 request at a time: leave it off"),
        ((SHIP_FOR, SHIP),
         "Turn it on for category code only, at 1 request at a time; off for the mix"),
        ((None, None), "The time was over before anything was compared: leave it off"),
        ((None, SHIP), "The time was over before anything was compared at 1 request at a time: "
                       "leave it off"),
    ],
)  # fmt: skip
def test_the_headline(ends: tuple[str | None, ...], said: str) -> None:
    assert headline(answer_of(ended(*ends))) == said


def test_loads_in_any_order() -> None:
    loads = load(16, DONT_SHIP), load(4, SHIP), load(1, SHIP)
    answer = answer_of(results_of(*loads, main=2))
    assert headline(answer) == headline(answer_of(ended(SHIP, SHIP, DONT_SHIP)))
    assert [each.load.concurrency for each in answer.loads] == [1, 4, 16]
    from_four = answer_of(results_of(*loads[:2], load(1, INCONCLUSIVE), main=1))
    assert (
        headline(from_four)
        == "Turn it on with 3 to 8 requests at a time; off with 1 to 2 and 9 or more"
    )
    upwards = answer_of(results_of(load(4, SHIP), load(1, DONT_SHIP)))
    assert headline(upwards) == "Turn it on from 3 requests at a time on; off below"


def test_the_place_of_the_switch() -> None:
    assert details(answer_of(ended(SHIP, SHIP, DONT_SHIP))) == (
        "The switch lies between 4 and 16 requests at a time: only these were measured; the "
        "schedule puts it after 8.",
        "It does not pay at 16 requests at a time.",
    )


def test_where_another_proposer_pays() -> None:
    """As on a real machine: suffix was best with four at a time, and the schedule off from 3 on."""
    results = results_of(load(1, SHIP), load(4, SHIP, SUFFIX))
    answer = answer_of(results)
    assert results.schedule == ((1, 2, 5), (3, 4096, 0))
    assert headline(answer) == "Turn it on up to 2 requests at a time; off above"
    assert (
        "At 4 requests at a time suffix k=4 pays, 1.50x [1.47, 1.53]; one server runs one "
        "proposer, so it is off there."
    ) in details(answer)
    assert [each.arm for each in answer.loads] == ["eagle head k=5", None]


def test_a_load_that_nothing_was_measured_at() -> None:
    results = ended(SHIP, None)
    assert answer_of(results).loads[1].finding is Finding.UNMEASURED
    late = (
        "There was no time to compare anything at 4 requests at a time; the settings are on there "
        "too."
    )
    assert late in details(answer_of(results))
    assert answer_of(results).loads[1].k == results.loads[0].arms[1].speculation.k
    off, *others = results.loads[1].arms
    failed = replace(results.loads[1], arms=(off, *(replace(arm, state=FAILED) for arm in others)))
    answer = answer_of(results_of(results.loads[0], failed))
    assert "Nothing could be measured at 4 requests at a time." in details(answer)
    assert late not in details(answer)
    assert headline(answer) == "Turn it on up to 2 requests at a time; off above"
    assert "The schedule switches after 2; on one side of that nothing was measured." in details(
        answer
    )


def crashed(size: int, *, is_open: bool = True) -> LoadResult:
    """Every arm failed there, off did not."""
    off, *others = (each := load(size, None, is_open=is_open)).arms
    return replace(each, arms=(off, *(replace(arm, state=FAILED) for arm in others)))


def test_it_is_off_where_every_arm_crashed() -> None:
    """The card was green, and said on, not measured."""
    answer = answer_of(results_of(load(1, SHIP, is_open=True), crashed(8)))
    assert answer.advice is Recommendation.ON_IN_RANGE
    assert headline(answer) == "Turn it on up to 1 request/s; off from 8 requests/s on"
    assert [(each.k, each.settings_k) for each in answer.loads] == [(5, 5), (0, 5)]
    assert details(answer) == (
        "The engine does not switch by itself: its settings are for 1 request/s, and stay on at "
        "8 requests/s.",
        "Nothing could be measured at 8 requests/s.",
        "Nothing below 1 request/s was measured.",
        "Nothing above 1 request/s was measured.",
    )
    around = load(1, SHIP, is_open=True), crashed(4), load(8, SHIP, is_open=True)
    assert headline(answer_of(results_of(*around))) == (
        "Turn it on at 1 and 8 requests/s; off at 4 requests/s"
    )
    below = answer_of(results_of(load(4, SHIP, is_open=True), crashed(1)))
    assert headline(below) == "Turn it on from 4 requests/s on; off up to 1 request/s"


def test_a_schedule_is_not_used_where_it_is_on_at_a_crash() -> None:
    loads = load(1, SHIP), crashed(4, is_open=False), load(16, DONT_SHIP)
    answer = answer_of(results_of(*loads, schedule=((1, 8, 5), (9, 4096, 0))))
    assert answer.schedule_fault == "it is on with 4 running, where it was not shown to pay"


def test_it_is_off_above_a_load_at_which_it_is_off() -> None:
    """It was recommended with 8 a second, without a measurement, and not with 4."""
    sizes = (1, SHIP), (4, DONT_SHIP), (8, None)
    answer = answer_of(results_of(*(load(*each, is_open=True) for each in sizes)))
    assert headline(answer) == "Turn it on up to 1 request/s; off from 4 requests/s on"
    assert [(each.k, each.settings_k) for each in answer.loads] == [(5, 5), (0, 5), (0, 5)]
    assert "and stay on at 4 and 8 requests/s." in details(answer)[1]
    assert "There was no time to compare anything at 8 requests/s." in details(answer)
    between = (1, SHIP), (2, None), (4, DONT_SHIP), (8, SHIP), (9, None)
    answer = answer_of(results_of(*(load(*each, is_open=True) for each in between)))
    assert [each.is_on for each in answer.loads] == [True, True, False, True, True]


def test_what_failed_is_told_from_what_there_was_no_time_for() -> None:
    over = answer_of(ended(None))
    assert over.advice is Recommendation.OUT_OF_TIME
    [only] = over.loads
    dead = tuple(replace(arm, state=FAILED) for arm in only.load.arms)
    failed = answer_of(results_of(replace(only.load, arms=dead)))
    assert failed.advice is Recommendation.UNMEASURED
    assert headline(failed) == "Nothing could be measured at 1 request at a time: leave it off"


def test_a_load_that_pays_beside_a_main_load_that_does_not() -> None:
    answer = answer_of(ended(INCONCLUSIVE, SHIP))
    assert answer.settings == OFF
    assert details(answer) == (
        "At 4 requests at a time eagle head k=5 pays, 1.50x [1.47, 1.53]; the settings are for "
        "1 request at a time, the first load, so it stays off.",
    )


def test_without_a_schedule_only_measured_loads_are_named() -> None:
    rates = results_of(*(load(size, end, is_open=True)
                         for size, end in ((2, SHIP), (8, DONT_SHIP))))  # fmt: skip
    answer = answer_of(rates)
    assert headline(answer) == "Turn it on up to 2 requests/s; off from 8 requests/s on"
    assert details(answer)[:2] == (
        "The switch lies between 2 and 8 requests/s: only these were measured.",
        "The engine does not switch by itself: its settings are for 2 requests/s, and stay on at "
        "8 requests/s.",
    )


def test_a_schedule_that_is_not_to_be_used() -> None:
    results = ended(SHIP, DONT_SHIP)
    assert recommended(results).schedule == results.schedule
    lost = ScheduleResult("concurrency 4", ratio_about(0.8, 0.02, 9))
    for unused, why in (
        ({"scheduled": (lost,)}, "it failed or lost at concurrency 4"),
        (
            {"schedule": ((1, 4, 5), (5, 4096, 0))},
            "it is on with 4 running, where it was not shown to pay",
        ),
        ({"schedule": ((1, 2, 0), (3, 4096, 0))}, "it is off everywhere"),
        ({"schedule": ((1, 2, 0), (3, 4096, 5))}, "it is off at the first load, which pays"),
    ):
        changed = replace(results, **unused)
        assert recommended(changed) == EAGLE
        answer = answer_of(changed)
        assert (
            headline(answer)
            == "Turn it on up to 1 request at a time; off from 4 requests at a time on"
        )
        assert f"There is a schedule, and it is not used: {why}." in details(answer)


def test_an_engine_that_cannot_follow_a_schedule() -> None:
    told = (
        "The engine does not switch by itself: its settings are for 1 request at a time, and stay "
        "on at 4 requests at a time."
    )
    for has_schedule, is_told in ((None, False), (True, False), (False, True)):
        results = replace(ended(SHIP, DONT_SHIP), has_schedule=has_schedule)
        assert (told in details(answer_of(results))) == is_told


def test_the_settings_of_an_engine_without_a_schedule_are_those_of_its_file() -> None:
    results = ended(SHIP, DONT_SHIP)
    follows, stays = (
        [each.settings_k for each in answer_of(replace(results, has_schedule=has)).loads]
        for has in (True, False)
    )
    assert (follows, stays) == ([5, 0], [5, 5])


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (DONT_SHIP, "it does not pay"),
        (INCONCLUSIVE, "nothing was proven"),
        (SHIP_FOR, "only parts of the traffic win"),
        (None, "nothing was measured"),
    ],
)
def test_why_a_schedule_is_not_used_is_what_was_found(end: str | None, why: str) -> None:
    """It said "does not pay" beside "Not proven either way"."""
    results = replace(ended(end, SHIP), schedule=((1, 2, 0), (3, 4096, 5)))
    told = f"There is a schedule, and it is not used: {why} at the first load."
    assert told in details(answer_of(results))


def test_parts_that_lose_are_named_where_it_is_on() -> None:
    answer = answer_of(ended(SHIP, WHOLE))
    assert answer.advice is Recommendation.ON_THOUGH
    assert "At 4 requests at a time category chat loses by it." in details(answer)
    assert [why_text(each) for each in answer.loads] == ["pays", "pays as a whole"]
    main = answer_of(ended(WHOLE))
    assert (
        "This mix wins as a whole, the most with category code; category chat loses by it."
    ) in details(main)
    [only] = main.loads
    assert only.load.verdict is not None
    many = replace(only.load.verdict, losers=tuple(f"category {at}" for at in range(6)))
    crowded = answer_of(results_of(replace(only.load, verdict=many)))
    assert headline(crowded).endswith("; 6 parts of the traffic lose by it")


def test_other_texts_are_not_called_slow() -> None:
    """ "4.70x … it does not pay" would be nonsense: it is fast, and it is junk."""
    fast = load(1, DONT_SHIP)
    off, best, *others = fast.arms
    junk = replace(best, texts=Agreement(24, 0, (0,) * 24))
    results = results_of(replace(fast, arms=(off, junk, *others), text_floor=Agreement(16, 16)))
    assert headline(answer_of(results)) == (
        "Leave it off: it writes other texts at 1 request at a time"
    )


def test_the_words_for_loads() -> None:
    loads = [load(size, SHIP) for size in (1, 2, 4, 8, 16)]
    assert loads_text(loads[:1]) == "1 request at a time"
    assert loads_text([load(1, SHIP, is_open=True)]) == "1 request/s"
    assert loads_text([load(2, SHIP, is_open=True)]) == "2 requests/s"
    assert loads_text(loads[:3]) == "1, 2 and 4 requests at a time"
    assert loads_text(loads) == "5 loads from 1 to 16 requests at a time"
    assert loads_text([loads[0], load(2, SHIP, is_open=True)]) == "concurrency 1 and 2 requests/s"


def test_a_speedup_without_an_interval_says_so() -> None:
    assert speedup_text(ratio_about(3.98, 0.1, 4)) == "3.98x [no interval]"
    assert speedup_text(ratio_about(2.0, 0.02, 9)) == "2.00x [1.96, 2.04]"
    assert speedup_text(None) == "not measured"


def test_why_a_higher_figure_is_not_chosen() -> None:
    """1.49 [1.09, 2.04] stood beside a starred 1.41 [0.97, 2.06] without a word."""
    first = load(1, INCONCLUSIVE)
    best = replace(first.arms[1], measured=ratio_about(1.41, 0.37, 9))
    assert first.arms[2].measured is None
    rival = ArmResult("suffix k=4", SUFFIX, RACED, measured=ratio_about(1.49, 0.31, 5))
    judged = replace(first, arms=(first.arms[0], best, rival))
    [said] = why_not_higher(judged)
    assert said == (
        "At 1 request at a time suffix k=4 (1.49x [1.09, 2.03]) measured higher in the race than "
        "eagle head k=5 (1.41x [0.97, 2.04]) in the final. The highest of several figures is "
        "likely to be too high."
    )
    first_blocks = replace(rival, state=PROFILED, predicted=1.1)
    arms = (judged.arms[0], replace(best, predicted=1.3), first_blocks)
    hoped = replace(judged, arms=arms, prompts=FinalPrompts(8, 0, 16))
    assert why_not_higher(hoped)[0].endswith(
        "; the choice was made by what the first blocks predicted: eagle head k=5 1.30x, suffix "
        "k=4 1.10x."
    )
    by = "the choice was made by"
    unknown = replace(hoped, arms=(*judged.arms[:2], first_blocks))
    assert by not in why_not_higher(unknown)[0], "of the best arm no prediction is known"
    both = replace(hoped, arms=(*arms, replace(rival, name="suffix k=3", measured=None)))
    assert by not in why_not_higher(both)[0], "another one raced"
    assert by not in why_not_higher(replace(hoped, prompts=None))[0], "results of before"
    raced = replace(judged, arms=(*judged.arms[:1], replace(best, raced=best.measured), rival))
    assert why_not_higher(raced)[0].endswith(
        "; in the race eagle head k=5 had 1.41x, and predictions and other draft lengths counted "
        "too."
    )
    chosen = replace(best, raced=ratio_about(1.6, 0.1, 6))
    ahead = why_not_higher(replace(raced, arms=(*judged.arms[:1], chosen, rival)))
    assert ahead[0].endswith("; in the race eagle head k=5 had 1.60x.")
    assert (
        "The choice also counts what was predicted"
        in why_not_higher(replace(judged, verdict=None))[0]
    )
    junk = replace(rival, state=FAILED, reason="it writes other texts")
    assert why_not_higher(replace(judged, arms=(*judged.arms[:2], junk))) == (
        "At 1 request at a time suffix k=4 (1.49x [1.09, 2.03]) measured higher and failed: "
        "it writes other texts.",
    )
    assert why_not_higher(first) == ()
