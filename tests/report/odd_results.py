"""Unusual results that a report still has to show: nothing measured, markup in names, 40 arms."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from outdraft.decide.evidence import Evidence
from outdraft.decide.verdict import decide
from outdraft.plan.findings import Check
from outdraft.speculation import Speculation
from outdraft.stats.ratios import Ratio
from outdraft.tune import results as states
from outdraft.tune.arm import proposer_name
from outdraft.tune.results import (
    AcceptanceResult,
    ArmResult,
    LoadResult,
    MemoryResult,
    PredictionResult,
    Pruned,
    Results,
)
from outdraft.tune.schedule import schedule_of
from tests.report.sample_results import prediction_of, ratio_about, sample_results

SCRIPT = "<script>document.title = 'owned'</script>\"'&"
LONG = "draft_model " + "a-very-long-name-without-a-single-space-" * 5


def one_load_failed() -> Results:
    """At the highest load nothing could be measured."""
    results = sample_results()
    last = results.loads[-1]
    arms = tuple(
        arm if arm.state == states.BASELINE else _failed(arm, "the server died: exit code 137")
        for arm in last.arms
    )
    loads = (*results.loads[:-1], replace(last, arms=arms, best=None, verdict=None))
    return replace(results, loads=loads, prediction=prediction_of(loads))


def nothing_measured() -> Results:
    results = sample_results()
    loads = tuple(
        replace(
            load,
            best=None,
            verdict=None,
            arms=tuple(_failed(arm, "no answer") for arm in load.arms),
        )
        for load in results.loads
    )
    return replace(
        results, loads=loads, acceptance=(), memory=None, schedule=(), num_requests=0,
        prediction=PredictionResult(0, None, None), is_complete=False,
    )  # fmt: skip


def all_inconclusive() -> Results:
    """Every interval holds 1."""
    results = sample_results()
    verdict = decide(Evidence(e2e=ratio_about(1.01, 0.06, 6), more_requests=420))
    loads = tuple(
        replace(
            load,
            verdict=verdict,
            arms=tuple(
                arm if arm.measured is None else replace(arm, measured=ratio_about(1.01, 0.06, 6))
                for arm in load.arms
            ),
        )
        for load in results.loads
    )
    return replace(results, loads=loads, is_complete=False, prediction=prediction_of(loads))


def no_acceptance() -> Results:
    """From an engine that does not report acceptance."""
    results = sample_results()
    loads = tuple(
        replace(
            load,
            arms=tuple(
                replace(arm, acceptance_rate=None, acceptance_length=None) for arm in load.arms
            ),
        )
        for load in results.loads
    )
    return replace(results, loads=loads, acceptance=())


def hostile_names() -> Results:
    """Markup, quotes and control characters wherever a text may stand."""
    results = sample_results()
    verdict = decide(Evidence(e2e=ratio_about(1.5, 0.02, 9), problems=(SCRIPT,)))
    verdict = replace(verdict, checks=(Check(SCRIPT, SCRIPT, SCRIPT, SCRIPT, SCRIPT),))
    speculation = Speculation("draft_model", draft=SCRIPT)
    return replace(
        results,
        target=SCRIPT + "\x00\ud800",
        backend=SCRIPT,
        objective=SCRIPT,
        settings={SCRIPT: {SCRIPT: [SCRIPT]}},
        environment={SCRIPT: SCRIPT},
        started_at=SCRIPT,
        notes=(SCRIPT,),
        main_load=SCRIPT,
        pruned=(Pruned(SCRIPT, SCRIPT),),
        memory=MemoryResult(5, 1, 2, 0, 7, SCRIPT),
        acceptance=tuple(_hostile(each) for each in results.acceptance[:2]),
        loads=tuple(
            replace(
                load,
                name=SCRIPT,
                best=SCRIPT,
                verdict=verdict,
                arms=tuple(
                    replace(arm, name=SCRIPT, reason=SCRIPT, speculation=speculation)
                    for arm in load.arms[-2:]
                ),
            )
            for load in results.loads[:1]
        ),
    )


def long_names() -> Results:
    results = sample_results()
    draft = LONG.removeprefix("draft_model ")
    loads = tuple(
        replace(
            load,
            best=LONG if load.best is not None else None,
            arms=tuple(
                replace(
                    arm, name=LONG, reason=LONG, speculation=replace(arm.speculation, draft=draft)
                )
                if arm.name == load.best
                else arm
                for arm in load.arms
            ),
        )
        for load in results.loads
    )
    acceptance = (replace(results.acceptance[3], name=LONG), *results.acceptance[:2])
    return replace(results, loads=loads, target=LONG, acceptance=acceptance)


def single_arm() -> Results:
    """One load, one arm beside off, no schedule, hardly any requests."""
    results = sample_results()
    load = results.loads[0]
    kept = tuple(arm for arm in load.arms if arm.state == states.BASELINE or arm.name == load.best)
    few = tuple(
        replace(arm, tpot_ms=arm.tpot_ms[:2], e2e_ms=arm.e2e_ms[:2], ttft_ms=()) for arm in kept
    )
    loads = (replace(load, arms=few),)
    return replace(
        results, loads=loads, main_load=load.name, acceptance=results.acceptance[3:4], pruned=(),
        schedule=(), prediction=prediction_of(loads), notes=(), environment={}, settings={},
    )  # fmt: skip


def forty_arms() -> Results:
    """At nine loads, given as requests per second."""
    results = sample_results()
    first = results.loads[1]
    arms = [arm for arm in first.arms if arm.state in (states.BASELINE, states.BEST)]
    for number in range(40):
        k = 2 + number % 7
        draft = f"draft-{number // 7}"
        arms.append(
            ArmResult(
                name=f"draft_model {draft} k={k}",
                speculation=Speculation("draft_model", k=k, draft=draft),
                state=states.RACED,
                predicted=1 + number / 50,
                measured=ratio_about(0.6 + number / 25, 0.04, 8),
                acceptance_rate=0.5,
                num_requests=96,
                goodput_per_s=1.5,
            )
        )
    loads = tuple(
        LoadResult(f"{rate:g} requests/s", None, rate, tuple(arms), first.best, first.verdict)
        for rate in (0.5, 1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 24.0, 32.0)
    )
    acceptance = tuple(
        replace(results.acceptance[2], name=f"draft_model draft-{number}") for number in range(6)
    )
    return replace(
        results, loads=loads, main_load=loads[3].name, prediction=prediction_of(loads),
        acceptance=results.acceptance + acceptance, schedule=(),
    )  # fmt: skip


def wins_everywhere() -> Results:
    """With one proposer at all three loads."""
    results = sample_results()
    loads = (*results.loads[:2], _moved_to(results.loads[1], "concurrency 16", 16))
    return replace(results, loads=loads, schedule=schedule_of(loads, _proposer(loads[1])))


def wins_in_parts() -> Results:
    """For a category at the main load, and for all of the traffic together at none."""
    results = sample_results()
    loads = tuple(
        replace(
            load,
            verdict=decide(
                Evidence(
                    e2e=ratio_about(0.97, 0.08, 20),
                    by_category={
                        "code": ratio_about(1.6, 0.1, 20, 2),
                        "chat": ratio_about(0.7, 0.1, 20, 2),
                    },
                )
            ),
            arms=tuple(_measured_as(arm, load, ratio_about(0.97, 0.08, 20)) for arm in load.arms),
        )
        for load in results.loads
    )
    return replace(results, loads=loads, schedule=(), prediction=prediction_of(loads))


def wins_but_for_a_part() -> Results:
    """At both loads: chat loses, and the whole wins all the same."""
    results = sample_results()
    whole = ratio_about(1.2, 0.03, 20)
    evidence = Evidence(
        e2e=whole,
        throughput=whole,
        total=whole,
        by_category={"code": ratio_about(1.6, 0.1, 20, 2), "chat": ratio_about(0.7, 0.1, 20, 2)},
        tpot_by_part={"category code": ratio_about(1.7, 0.1, 20, 2)},
        concurrency=4,
    )
    loads = tuple(_judged(load, evidence) for load in results.loads[:2])
    return replace(results, loads=loads, schedule=(), prediction=prediction_of(loads))


def waits_less() -> Results:
    """At every load: a category is faster because first tokens come sooner from a slower server."""
    results = sample_results()
    evidence = Evidence(
        e2e=ratio_about(0.98, 0.06, 20),
        throughput=ratio_about(0.91, 0.05, 20),
        by_category={"code": ratio_about(1.2, 0.1, 20, 2), "chat": ratio_about(0.7, 0.1, 20, 2)},
        tpot_by_part={"category code": ratio_about(1.0, 0.1, 20, 2)},
        concurrency=16,
        has_idle_slots=False,
    )
    loads = tuple(_judged(load, evidence) for load in results.loads)
    return replace(results, loads=loads, schedule=(), prediction=prediction_of(loads))


def on_where_nothing_was_measured() -> Results:
    """At the second load there was no time; no schedule switches the settings there."""
    results = sample_results()
    first, second, _ = results.loads
    late = replace(
        second,
        best=None,
        verdict=None,
        arms=tuple(
            arm
            if arm.state == states.BASELINE
            else ArmResult(arm.name, arm.speculation, states.PREDICTED, predicted=arm.predicted)
            for arm in second.arms
        ),
    )
    loads = (first, late)
    return replace(
        results, loads=loads, main_load=first.name, schedule=(), is_complete=False,
        prediction=prediction_of(loads),
    )  # fmt: skip


def loses() -> Results:
    """At every load, and n-grams are the best there is."""
    results = sample_results()
    loads = tuple(
        replace(
            load,
            verdict=decide(Evidence(e2e=ratio_about(0.83, 0.04, 20))),
            arms=tuple(_measured_as(arm, load, ratio_about(0.83, 0.04, 20)) for arm in load.arms),
        )
        for load in results.loads
    )
    return replace(results, loads=loads, schedule=(), prediction=prediction_of(loads))


def another_proposer() -> Results:
    """Pays with many at a time: the schedule of the first load's is off there."""
    results = sample_results()
    first, second, _ = results.loads
    other = next(arm for arm in second.arms if arm.speculation.method == "eagle")
    arms = tuple(
        replace(arm, state=states.BEST, measured=ratio_about(1.41, 0.05, 20))
        if arm is other
        else replace(arm, state=states.RACED)
        if arm.name == second.best
        else arm
        for arm in second.arms
    )
    loads = (first, replace(second, arms=arms, best=other.name))
    schedule = schedule_of(loads, _proposer(first))
    return replace(results, loads=loads, main_load=first.name, schedule=schedule)


def out_of_time() -> Results:
    """Off and the first blocks of one proposer; nothing was chosen."""
    results = sample_results()
    loads = tuple(
        replace(
            load,
            best=None,
            verdict=None,
            arms=tuple(
                arm
                if arm.state == states.BASELINE
                else ArmResult(arm.name, arm.speculation, states.PREDICTED, predicted=arm.predicted)
                for arm in load.arms
            ),
        )
        for load in results.loads
    )
    return replace(
        results, loads=loads, schedule=(), is_complete=False, prediction=prediction_of(loads)
    )


ODD: dict[str, Callable[[], Results]] = {
    each.__name__: each
    for each in (
        one_load_failed, nothing_measured, all_inconclusive, no_acceptance, hostile_names,
        long_names, single_arm, forty_arms, wins_everywhere, wins_in_parts, loses,
        wins_but_for_a_part, waits_less, on_where_nothing_was_measured, another_proposer,
        out_of_time,
    )
}  # fmt: skip


def _judged(load: LoadResult, evidence: Evidence) -> LoadResult:
    """With this verdict on the judged arm; others lose."""
    assert evidence.e2e is not None
    arms = tuple(_measured_as(arm, load, evidence.e2e) for arm in load.arms)
    return replace(load, verdict=decide(evidence), arms=arms)


def _moved_to(load: LoadResult, name: str, concurrency: int) -> LoadResult:
    return replace(load, name=name, concurrency=concurrency)


def _measured_as(arm: ArmResult, load: LoadResult, measured: Ratio) -> ArmResult:
    """The judged arm with these figures; others lose."""
    if arm.measured is None:
        return arm
    if arm.name != load.best:
        return replace(arm, measured=ratio_about(0.7, 0.05, arm.measured.num_blocks))
    return replace(arm, measured=measured, ratios={"e2e": measured})


def _proposer(load: LoadResult) -> str:
    assert load.best_arm is not None
    return proposer_name(load.best_arm.speculation)


def _failed(arm: ArmResult, reason: str) -> ArmResult:
    return ArmResult(arm.name, arm.speculation, states.FAILED, reason, num_errors=12)


def _hostile(found: AcceptanceResult) -> AcceptanceResult:
    return replace(
        found,
        name=SCRIPT,
        by_category={SCRIPT: (0.1, 0.2, 0.3)},
        by_temperature={SCRIPT: 0.4, "1+": 0.1},
        per_position_by_temperature={SCRIPT: (0.5, 0.2), "1+": (0.2,)},
    )
