"""Results of every kind that a tuning run can end with, for walks over all of them: verdicts on any
evidence, loads without one, arms that measured higher than the judged one, schedules that do not
fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from outdraft.acceptance import Acceptance
from outdraft.decide.evidence import Evidence
from outdraft.decide.texts import Agreement
from outdraft.decide.verdict import decide
from outdraft.measure.evidence import RATIOS
from outdraft.speculation import OFF, Speculation
from outdraft.tune import results as states
from outdraft.tune.arm import name_of, proposer_name
from outdraft.tune.results import (
    ArmResult,
    FinalPrompts,
    LoadResult,
    PredictionResult,
    Results,
    ScheduleResult,
)
from outdraft.tune.schedule import schedule_of
from tests.report.sample_results import prediction_of, ratio_about

PROPOSERS = (Speculation("ngram"), Speculation("eagle", draft="head"))
ARMS = tuple(Speculation(each.method, k=k, draft=each.draft) for each in PROPOSERS for k in (2, 4))
# How a load ended. A verdict of before does not say whether the whole wins. The last two have no
# arm to judge.
ENDS = ("judged", "judged", "judged", "of before", "other texts", "no verdict", "time", "failed")
WITHOUT_BEST = ("time", "failed")
_estimates = st.sampled_from((0.7, 0.95, 1.0, 1.2, 1.41, 1.49, 2.0))
_widths = st.sampled_from((0.02, 0.3))
_blocks = st.sampled_from((2, 4, 5, 20))
_ratios = st.builds(ratio_about, st.sampled_from((0.7, 0.93, 1.0, 1.08, 1.5)), _widths, _blocks)
_clear_or_unclear = st.builds(
    ratio_about, st.sampled_from((1.1, 0.9)), st.sampled_from((0.02, 0.2)), st.just(20)
)
_clear = st.builds(ratio_about, st.sampled_from((0.7, 1.0, 1.6)), st.just(0.02), st.just(20))


@st.composite
def walked(draw: st.DrawFn) -> Results:
    is_open = draw(st.booleans())  # by the clock
    sizes = draw(st.lists(st.sampled_from((1, 2, 4, 16, 64)), max_size=4, unique=True))
    loads = tuple(draw(_load(size, is_open=is_open)) for size in sizes)
    main = loads[0] if loads else None
    best = None if main is None else main.best_arm
    schedule: Any = ()
    if best is not None and not is_open:
        fitting = schedule_of(loads, proposer_name(best.speculation))
        odd = ((1, 2, 4), (3, 4096, 0)), ((1, 3, 0), (4, 40, 2), (41, 4096, 0)), ((1, 4096, 0),)
        schedule = draw(st.sampled_from(((), fitting, fitting, *odd)))
    measured = prediction_of(loads)
    return Results(
        settings={"keep_memory": draw(st.booleans())},
        environment={},
        backend=draw(st.sampled_from(("embedded", "outdraft", "vllm", "llamacpp"))),
        target="target",
        objective="e2e",
        loads=loads,
        acceptance=(),
        pruned=(),
        prediction=draw(st.sampled_from((measured, PredictionResult(0, None, None)))),
        schedule=schedule,
        scheduled=draw(_scheduled(loads)) if len(schedule) > 1 else (),
        main_load="" if main is None else main.name,
        num_requests=sum(arm.num_requests for load in loads for arm in load.arms),
        has_schedule=draw(st.sampled_from((None, True, False))),
        is_complete=draw(st.booleans()),
    )


@st.composite
def _load(draw: st.DrawFn, size: int, *, is_open: bool) -> LoadResult:
    name = f"{size:g} requests/s" if is_open else f"concurrency {size}"
    concurrency, rate = (None, float(size)) if is_open else (size, None)
    end = draw(st.sampled_from(ENDS))
    best = None if end in WITHOUT_BEST else draw(st.sampled_from(ARMS))
    evidence = draw(_evidence(concurrency, end))
    off = ArmResult("off", OFF, states.BASELINE, num_requests=40, tokens_per_s=30.0)
    arms = [off, *(draw(_arm(each, best, end, evidence)) for each in ARMS)]
    verdict = None
    if best is not None and end != "no verdict":
        verdict = decide(evidence)
    if verdict is not None and end == "of before":
        verdict = replace(verdict, losers=(), whole_wins=None)
    judged = None if best is None else name_of(best)
    shared = draw(st.sampled_from((None, 0, 5, 20)))
    prompts = None if verdict is None or shared is None else FinalPrompts(20, shared, 40)
    floor = evidence.text_floor
    return LoadResult(name, concurrency, rate, tuple(arms), judged, verdict, floor, prompts)


@st.composite
def _evidence(draw: st.DrawFn, concurrency: int | None, end: str) -> Evidence:
    """Half of it of a mix that wins by some per cent, with a part that loses."""
    is_other, is_mixed = end == "other texts", draw(st.booleans())
    evidence = Evidence(
        e2e=draw(_ratios),
        throughput=draw(_ratios),
        total=draw(_ratios),
        p99=draw(st.none() | _ratios),
        by_category={"code": draw(_clear), "chat": draw(_clear)},
        tpot_by_part={"category code": draw(_clear), "category chat": draw(_clear)},
        texts=Agreement(24, 0, (0,) * 24) if is_other else Agreement(24, 24),
        text_floor=Agreement(16, 16) if is_other else None,
        concurrency=concurrency,
        has_idle_slots=draw(st.booleans()),
        more_requests=draw(st.sampled_from((None, 200))),
    )
    if not is_mixed:
        return evidence
    gain, loss = ratio_about(1.6, 0.02, 20), ratio_about(0.7, 0.02, 20)
    return replace(
        evidence,
        e2e=ratio_about(1.08, 0.02, 20),
        throughput=draw(_clear_or_unclear),
        total=draw(_clear_or_unclear),
        by_category={"code": gain, "chat": loss},
        tpot_by_part={"category code": gain},
    )


@st.composite
def _arm(
    draw: st.DrawFn, arm: Speculation, best: Speculation | None, end: str, evidence: Evidence
) -> ArmResult:
    name, is_best = name_of(arm), arm == best
    state = states.BEST if is_best else draw(st.sampled_from(states.STATES[2:]))
    if end == "failed":
        state = states.FAILED
    # Of an earlier version an arm may be called predicted though it was measured.
    may_be = state in (states.PREDICTED, states.FAILED)
    if end in WITHOUT_BEST or (may_be and draw(st.booleans())):
        reason = "no answer" if state == states.FAILED else "2 others were predicted faster"
        state = states.PREDICTED if state not in (states.PREDICTED, states.FAILED) else state
        return ArmResult(name, arm, state, reason, predicted=draw(st.none() | _estimates))
    measured = ratio_about(draw(_estimates), draw(_widths), draw(_blocks))
    judged = {each: ratio for each in RATIOS if (ratio := getattr(evidence, each)) is not None}
    if is_best:
        assert evidence.e2e is not None
        measured = evidence.e2e
    counts = draw(st.sampled_from((None, Acceptance(30, 120, 60, accepted_per_position=[30, 30]))))
    return ArmResult(
        name,
        arm,
        state,
        reason="so it came" if state != states.RACED else "",
        predicted=draw(st.none() | _estimates),
        measured=measured,
        ratios=judged if is_best else {"e2e": measured},
        acceptance_rate=0.5,
        num_requests=measured.num_pairs,
        counts=counts,
        num_tokens=200,
        num_texts=10,
        texts=evidence.texts if is_best else None,
        raced=ratio_about(draw(_estimates), 0.1, 6) if is_best and draw(st.booleans()) else None,
    )


@st.composite
def _scheduled(draw: st.DrawFn, loads: tuple[LoadResult, ...]) -> tuple[ScheduleResult, ...]:
    ends = (None, ratio_about(1.3, 0.02, 9), ratio_about(0.8, 0.02, 9))
    return tuple(
        ScheduleResult(load.name, found, "it died" if found is None else "")
        for load in loads
        if (found := draw(st.sampled_from((*ends, 0)))) != 0
    )
