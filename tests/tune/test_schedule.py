"""The schedule from results of loads; and measured as an arm: with the time that is left, and the
same after a kill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from outdraft.decide.verdict import Verdict
from outdraft.report.tables import tune_table
from outdraft.speculation import OFF, Speculation
from outdraft.stats.ratios import Ratio
from outdraft.tune.arm import Load, name_of
from outdraft.tune.journal import Block, Failure, Journal
from outdraft.tune.results import (
    BEST,
    DROPPED,
    FAILED,
    PREDICTED,
    RACED,
    ArmResult,
    LoadResult,
    Results,
    results_from_json,
)
from outdraft.tune.rules import Objective, Rules, SearchSettings
from outdraft.tune.schedule import schedule_of, schedule_results, scheduled_arm
from outdraft.tune.search import Search
from tests.report.sample_results import sample_results

from .planted import Planted, Truth


def arm(k: int, state: str, measured: float | None = None, reach: float | None = 0.1) -> ArmResult:
    """`reach`: of the interval, to either side; None: there is none."""
    ratio = None
    if measured is not None:
        ends = (None, None) if reach is None else (measured - reach, measured + reach)
        ratio = Ratio(measured, *ends, 0.98, 40, 10)
    return ArmResult(
        f"ngram k={k}", Speculation("ngram", k=k), state, predicted=1.7, measured=ratio
    )


def load(
    concurrency: int, best: str | None, *arms: ArmResult, decision: str | None = None
) -> LoadResult:
    verdict = None if decision is None else Verdict(decision, (), (), ())
    return LoadResult(f"concurrency {concurrency}", concurrency, None, arms, best, verdict)


def k_of(*arms: ArmResult, best: str | None = None, decision: str | None = None) -> int:
    ((_, _, k),) = schedule_of([load(1, best, *arms, decision=decision)], "ngram")
    return k


def test_the_change_is_half_way_between_two_loads() -> None:
    first = load(1, "ngram k=4", arm(4, BEST, 1.5), decision="SHIP")
    many = load(16, None, arm(4, FAILED, 1.6), arm(8, PREDICTED), arm(2, RACED, 0.9))
    assert schedule_of([many, first], "ngram") == ((1, 4, 4), (5, 4096, 0))
    silent = LoadResult("concurrency 16", 16, None, (), None, None)
    assert schedule_of([first, silent], "ngram") == ((1, 4096, 4),)


@pytest.mark.parametrize(
    ("found", "decision", "k"),
    [
        (arm(4, BEST, 1.5), None, 0),  # nobody has judged it
        (arm(4, BEST, 1.5), "INCONCLUSIVE", 0),
        (arm(4, BEST, 1.5), "DON'T SHIP", 0),
        (arm(4, BEST, 1.05), "SHIP", 4),
        (arm(4, BEST, 1.5), "SHIP FOR", 0),  # a part of the traffic alone
        (
            replace(arm(4, BEST, 1.5), ratios={"e2e": Ratio(1.5, 1.2, 1.9, 0.95, 9, 9)}),
            "SHIP FOR",
            4,
        ),
    ],
)
def test_off_unless_the_win_is_proven(found: ArmResult, decision: str | None, k: int) -> None:
    assert k_of(found, best=found.name, decision=decision) == k


def test_only_the_length_that_was_judged() -> None:
    """A shorter one that looked as good in the race was not judged; nor was a longer one."""
    best = arm(8, BEST, 1.60, reach=0.05)
    others = arm(4, RACED, 1.60, reach=0.01), arm(2, DROPPED, 1.7, reach=0.01)
    assert k_of(best, *others, best="ngram k=8", decision="SHIP") == 8
    assert k_of(best, *others, best="ngram k=8", decision="INCONCLUSIVE") == 0


def test_where_another_proposer_was_judged() -> None:
    raced = arm(2, RACED, 1.2, reach=0.01)
    assert k_of(arm(8, PREDICTED), raced, best="suffix k=2", decision="SHIP") == 0


# ---------------------------------------------------------------- measured as an arm

ONE, MANY = Load(concurrency=1), Load(concurrency=32)
FASTEST = Speculation("eagle", k=8, draft="head")
SCHEDULE = ((1, 6, 7), (7, 4096, 0))
SCHEDULED = replace(FASTEST, k=7, schedule=SCHEDULE)
Measure = Callable[[Load, Speculation, int], Block | Failure]


class Killed(BaseException):
    pass


def settings_of(budget_s: float, methods: tuple[str, ...]) -> SearchSettings:
    rules = Rules(Objective("tpot"))
    return SearchSettings((FASTEST,), (ONE, MANY), rules, budget_s, schedule_methods=methods)


def run(
    folder: Path, measure: Measure, budget_s: float = 1e6, methods: tuple[str, ...] = ("eagle",)
) -> Results:
    """As if the races of two loads had led to this schedule."""
    settings = settings_of(budget_s, methods)
    with Journal(folder / "journal.jsonl", {}) as journal:
        for load in settings.loads:
            if not journal.of(load.name, "off"):
                journal.add(planted().measure(load, OFF, 0))
        Search(settings, journal, measure).run_schedule(FASTEST, SCHEDULE)
        return replace(
            sample_results(),
            schedule=SCHEDULE,
            scheduled=schedule_results(SCHEDULED, settings, journal),
            duration_s=journal.elapsed_s(),
            num_requests=journal.num_requests,
        )


def planted() -> Planted:
    return Planted({"eagle": Truth(0.8, 0.02)})


def test_it_wins_where_it_should_and_costs_nothing_elsewhere(tmp_path: Path) -> None:
    results = run(tmp_path, planted().measure)
    few, many = results.scheduled
    assert (few.load, many.load) == (ONE.name, MANY.name)
    assert few.measured is not None
    assert few.measured.low is not None
    assert few.measured.low > 1.5
    assert few.measured.num_blocks == 5
    assert many.measured is not None
    assert many.measured.low is not None
    assert many.measured.high is not None
    assert many.measured.low < 1 < many.measured.high, "it is off there"
    again = results_from_json(results.to_json())
    assert again.scheduled == results.scheduled
    assert "the schedule at concurrency 32: " in tune_table(results)


def test_not_where_the_engine_has_none_or_the_time_is_over(tmp_path: Path) -> None:
    assert run(tmp_path, planted().measure, methods=()).scheduled == ()
    spent = 8 + 8 / 32  # eight requests of a second, one at a time and all at once
    assert run(tmp_path, planted().measure, spent + 15).scheduled == ()
    engine = planted()
    some = run(tmp_path, engine.measure, spent + 40)
    assert engine.num_measured == 4, "two blocks of both at the first load"
    assert some.duration_s <= spent + 40
    assert [each.load for each in some.scheduled] == [ONE.name]


@pytest.mark.parametrize("left", [0, 1, 7, 12])
def test_killed_within_it_ends_the_same(tmp_path: Path, left: int) -> None:
    budget_s = 80.0  # for a part of it
    whole = run(tmp_path / "whole", (engine := planted()).measure, budget_s)
    resumed = planted()

    def measure(load: Load, arm: Speculation, block: int) -> Block | Failure:
        if resumed.num_measured == left:
            raise Killed
        return resumed.measure(load, arm, block)

    if left < engine.num_measured:
        with pytest.raises(Killed):
            run(tmp_path / "killed", measure, budget_s)
    assert run(tmp_path / "killed", resumed.measure, budget_s) == whole
    assert resumed.num_measured == engine.num_measured


def test_a_failure_is_told(tmp_path: Path) -> None:
    engine = planted()

    def measure(load: Load, arm: Speculation, block: int) -> Block | Failure:
        if arm.schedule and load.part == "schedule" and load.concurrency == 32:
            return Failure(load.name, name_of(arm), "no such flag", 1.0)
        return engine.measure(load, arm, block)

    results = run(tmp_path, measure)
    few, many = results.scheduled
    assert few.measured is not None
    assert (many.measured, many.reason) == (None, "no such flag")
    assert "the schedule at concurrency 32: failed (no such flag)" in tune_table(results)


def test_a_method_without_a_schedule_is_not_measured_with_one(tmp_path: Path) -> None:
    """SGLang has a schedule for heads alone."""
    engine = planted()
    assert run(tmp_path, engine.measure, methods=("ngram",)).scheduled == ()
    assert engine.num_measured == 0
    ngram = Speculation("ngram", k=8)
    assert scheduled_arm(ngram, SCHEDULE, settings_of(1e6, ("eagle",))) is None


def test_one_draft_length_for_all_is_no_schedule() -> None:
    settings = settings_of(1e6, ("eagle",))
    arm = scheduled_arm(FASTEST, SCHEDULE, settings)
    assert arm == SCHEDULED
    assert name_of(arm) == "eagle head k=7 scheduled 1:7,7:0"
    assert scheduled_arm(FASTEST, ((1, 4096, 5),), settings) is None
    assert scheduled_arm(FASTEST, ((1, 6, 0), (7, 4096, 0)), settings) is None
    assert scheduled_arm(FASTEST, (), settings) is None
    assert ONE.in_part("schedule").name == "concurrency 1, schedule"
    about = ONE.in_part("schedule", "eagle k=2")
    assert (about.name, about.plan_name) == (
        "concurrency 1, schedule of eagle k=2",
        "concurrency 1, schedule",
    )
