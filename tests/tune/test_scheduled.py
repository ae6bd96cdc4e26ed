"""The schedule measured as an arm: with the time that is left, and the same after a kill."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from outdraft.report.tune_table import tune_table
from outdraft.speculation import OFF, Speculation
from outdraft.testing.sample_results import sample_results
from outdraft.tune.arm import Load, name_of
from outdraft.tune.journal import Block, Failure, Journal
from outdraft.tune.objective import Objective
from outdraft.tune.results import LoadResult, Results, results_from_json
from outdraft.tune.scheduled import part_of, scheduled_arm, with_schedule
from outdraft.tune.session import Search
from outdraft.tune.standing import Rules

from .planted import Planted, Truth, arms_of

ONE, MANY = Load(concurrency=1), Load(concurrency=32)
ARMS = arms_of(("eagle",), range(2, 9))
Measure = Callable[[Load, Speculation, int], Block | Failure]


class Killed(BaseException):
    pass


def found() -> Results:
    """What the loads would have led to."""
    loads = tuple(
        LoadResult(load.name, load.concurrency, None, (), "eagle head k=8", None)
        for load in (ONE, MANY)
    )
    schedule = ((1, 6, 7), (7, 4096, 0))
    return replace(sample_results(), loads=loads, schedule=schedule, main_load=ONE.name)


def run(
    folder: Path, measure: Measure, budget_s: float = 1e6, has_schedule: bool = True
) -> Results:
    rules = Rules(Objective("tpot"))
    settings = Search(ARMS, (ONE, MANY), rules, budget_s, has_schedule=has_schedule)
    with Journal(folder / "journal.jsonl", {}) as journal:
        for load in settings.loads:
            if not journal.of(load.name, "off"):
                journal.add(planted().measure(load, OFF, 0))
        return with_schedule(found(), settings, journal, measure)


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
    assert run(tmp_path, planted().measure, has_schedule=False).scheduled == ()
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
        if arm.schedule and load == part_of(MANY):
            return Failure(load.name, name_of(arm), "no such flag", 1.0)
        return engine.measure(load, arm, block)

    results = run(tmp_path, measure)
    few, many = results.scheduled
    assert few.measured is not None
    assert (many.measured, many.reason) == (None, "no such flag")
    assert "the schedule at concurrency 32: failed (no such flag)" in tune_table(results)


def test_one_draft_length_for_all_is_no_schedule() -> None:
    arms = {name_of(arm): arm for arm in ARMS}
    arm = scheduled_arm(found(), arms)
    assert arm is not None
    assert (name_of(arm), arm.k) == ("eagle head k=7 scheduled 1:7,7:0", 7)
    assert scheduled_arm(replace(found(), schedule=((1, 4096, 5),)), arms) is None
    assert scheduled_arm(replace(found(), main_load="nowhere"), arms) is None
    assert part_of(ONE).name == "concurrency 1, schedule"
