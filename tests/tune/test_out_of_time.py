"""Searches that run out of time end with what there is, and say what would have been enough."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from outdraft.durations import format_duration, parse_duration
from outdraft.speculation import OFF, Speculation
from outdraft.tune.arm import FINAL, Load, name_of, proposer_name
from outdraft.tune.journal import Block, Failure, Journal, Start
from outdraft.tune.outcome import RunContext, make_results
from outdraft.tune.pace import Pace
from outdraft.tune.results import UNTRIED, Results
from outdraft.tune.rules import Objective, Rules, SearchSettings
from outdraft.tune.search import Search

from .planted import Planted, Truth, arms_of

ONE, FOUR, EIGHT = Load(concurrency=1), Load(concurrency=4), Load(concurrency=8)
TRUTHS = {"ngram": Truth(0.4, 0.0), "draft_model": Truth(0.7, 0.1), "eagle": Truth(0.8, 0.05)}
ARMS = arms_of(("ngram", "draft_model", "eagle"), range(2, 6))
BLOCK_S, START_S = 8.0, 7.0
# As it will be; `Planted` has blocks of 8 requests, a second each, in all parts.
PACE = Pace(START_S, {"concurrency 1": BLOCK_S, "concurrency 1, final": BLOCK_S})


@dataclass
class Engines:
    """Planted blocks of engines that have to be started first."""

    planted: Planted = field(default_factory=lambda: Planted(TRUTHS))
    start_s: float = START_S
    up: list[str] = field(default_factory=list)

    def prepare(self, load: Load, arms: Sequence[Speculation]) -> Start | None:
        for arm in sorted(arms, key=lambda each: each.is_off):
            if proposer_name(arm) not in self.up:
                self.up.append(proposer_name(arm))
                return Start(load.name, name_of(arm), self.start_s)
        return None

    def measure(self, load: Load, arm: Speculation, block: int) -> Block | Failure:
        assert proposer_name(arm) in self.up
        return self.planted.measure(load, arm, block)


def run(
    folder: Path,
    budget_s: float,
    loads: tuple[Load, ...] = (ONE,),
    engines: Engines | None = None,
    pace: Pace = PACE,
) -> Results:
    engines = engines or Engines()
    settings = SearchSettings(
        ARMS, loads, Rules(Objective("tpot")), budget_s, keeps_engines=True, pace=pace
    )
    with Journal(folder / "journal.jsonl", {}) as journal:
        search = Search(settings, journal, engines.measure, prepare=engines.prepare)
        outcomes, schedule = search.run()
        context = RunContext({}, "planted", "target")
        return make_results(context, settings, outcomes, schedule, journal)


FAST_S = (10, 60, 240)
BUDGETS = [
    *((each, PACE) for each in (1, 10, 25, 40, 60, 90, 120, 180, 240, 300, 450)),
    *((each, Pace()) for each in (25, 60, 120, 300)),  # only what was measured is known
]


@pytest.mark.parametrize("loads", [(ONE,), (ONE, FOUR), (ONE, FOUR, EIGHT)])
@pytest.mark.parametrize(
    ("budget_s", "pace"),
    [pytest.param(*each, marks=() if each[0] in FAST_S else pytest.mark.slow) for each in BUDGETS],
)
def test_with_the_budget_that_it_names_everything_is_judged(
    budget_s: float, loads: tuple[Load, ...], pace: Pace, tmp_path: Path
) -> None:
    short = run(tmp_path, budget_s, loads, pace=pace)
    assert short.duration_s <= budget_s + START_S + BLOCK_S, "one start may be longer than thought"
    assert not any("failed" in note for note in short.notes)
    if short.enough_s is None:
        assert short.is_complete
        assert all(load.verdict is not None for load in short.loads)
        return
    said = f"--budget {format_duration(short.enough_s)} would have been enough"
    (note,) = (each for each in short.notes if each.startswith(said))
    if " to judge every load" in note:
        budget = note.partition("(")[2].partition(" to judge")[0]
        judged = run(
            tmp_path / "judged", parse_duration(budget, option="--budget"), loads, pace=pace
        )
        assert all(load.verdict is not None for load in judged.loads)
    enough = run(tmp_path, short.enough_s, loads, pace=pace)
    assert enough.is_complete
    assert enough.enough_s is None
    assert all(load.verdict is not None for load in enough.loads)


def test_only_as_many_proposers_are_started_as_can_be_judged(tmp_path: Path) -> None:
    """Time for off, one proposer, their first blocks and the final: 2 x 7 + 2 x 8 + 20 x 8 s."""
    engines = Engines()
    results = run(tmp_path, 195, engines=engines)
    assert engines.up == ["eagle head", "off"], "what promises most is first, off last"
    (load,) = results.loads
    assert (load.best or "").startswith("eagle")
    assert load.verdict is not None
    assert load.verdict.decision == "SHIP"
    untried = "concurrency 1: no time was left to try ngram, draft_model small"
    assert untried in results.notes
    states = {arm.state for arm in load.arms if not arm.name.startswith(("off", "eagle"))}
    assert states == {UNTRIED}, "nothing is wrong with them"
    assert results.enough_s is not None
    run(tmp_path, results.enough_s, engines=engines)
    assert {"ngram", "draft_model small"} < set(engines.up)


def test_starts_that_take_long_are_noticed_after_the_first(tmp_path: Path) -> None:
    engines = Engines(start_s=50)
    results = run(tmp_path, 300, engines=engines)
    assert engines.up == ["eagle head", "off"]
    assert results.duration_s <= 300
    assert results.loads[0].verdict is not None


def test_the_main_load_is_judged_before_others_are_begun(tmp_path: Path) -> None:
    """Its profile alone took its share of the time."""
    results = run(tmp_path, 260, (ONE, EIGHT))
    first, second = results.loads
    assert first.verdict is not None
    assert first.measured is not None
    assert first.measured.num_blocks >= 10
    assert second.verdict is None
    (note,) = (each for each in results.notes if each.startswith("concurrency 8"))
    assert "the time was over" in note


def test_in_little_time_another_load_has_the_best_proposer_of_the_first(tmp_path: Path) -> None:
    results = run(tmp_path, 270, (ONE, EIGHT))
    first, second = results.loads
    assert (first.best or "").startswith("eagle")
    with Journal(tmp_path / "journal.jsonl", {}) as journal:
        measured = {each.arm for each in journal.blocks.values() if each.load == second.name}
    assert {arm.partition(" ")[0] for arm in measured} == {"off", "eagle"}
    assert second.verdict is not None


def test_continued_after_its_end_it_says_the_same(tmp_path: Path) -> None:
    first = run(tmp_path, 150, (ONE, FOUR))
    again = run(tmp_path, 150, (ONE, FOUR))
    assert again.loads == first.loads
    assert again.notes == first.notes
    assert again.enough_s == first.enough_s


def test_a_final_has_its_blocks_by_time_alone(tmp_path: Path) -> None:
    """The floor of ten does not look at what they measured."""
    counts = {}
    for name, truth in (("good", Truth(0.8, 0.05)), ("bad", Truth(0.1, 0.3))):
        planted = Planted(dict.fromkeys(TRUTHS, truth))
        run(tmp_path / name, 260, (ONE, EIGHT), Engines(planted))
        with Journal(tmp_path / name / "journal.jsonl", {}) as journal:
            final = [each for each in journal.blocks.values() if f", {FINAL} of " in each.load]
        counts[name] = sum(each.arm == name_of(OFF) and "concurrency 1," in each.load
                           for each in final)  # fmt: skip
    assert counts["good"] == counts["bad"] == 10
