"""Engines that take long to start: how often they are started, and what the time goes into."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from outdraft.decide.verdict import DONT_SHIP, INCONCLUSIVE, SHIP
from outdraft.durations import format_duration
from outdraft.speculation import OFF, Speculation
from outdraft.tune.arm import FINAL, Load
from outdraft.tune.cards import Cards
from outdraft.tune.journal import Block, Failure, Journal
from outdraft.tune.keeping import Keeping
from outdraft.tune.lab import Lab
from outdraft.tune.options import ASLEEP, VISITS
from outdraft.tune.outcome import LoadOutcome, RunContext, make_results
from outdraft.tune.pool import EnginePool
from outdraft.tune.requests import block_size
from outdraft.tune.rules import Objective, Rules, SearchSettings
from outdraft.tune.search import Search
from outdraft.workload.plan import Blocks, make_blocks
from outdraft.workload.sets import built_in

from .planted import Planted, Truth, arms_of
from .staged import VLLM, Stage, StagedEngine

LOADS = (Load(1), Load(4), Load(16))
ARMS = tuple(arm for arm in arms_of(("ngram", "draft_model", "eagle"), range(2, 7, 2)))
# A GPU box on which a small model gains nothing: every draft costs more than it saves.
LOSING = {
    "ngram": Truth(0.3, 0.1, lambda tokens, running: 1.6),
    "draft_model": Truth(0.5, 0.9),
    "eagle": Truth(0.5, 0.6),
}
WINNING = {**LOSING, "eagle": Truth(0.75, 0.1)}


def requests_of(loads: tuple[Load, ...], journal: Journal | None) -> dict[str, Blocks]:
    times = {} if journal is None else journal.answer_times
    parts = [load.in_part(part) for load in loads for part in ("", FINAL)]
    return {
        load.name: make_blocks(
            list(built_in()),
            size=block_size(load, times.get(load.in_part("").name)),
            count=40,
            mix=((0.0, 1.0),),
            seed=0,
            max_tokens=64,
            spread=0.0 if load.concurrency == 1 else 0.5,
            first=11 * place,
        )
        for place, load in enumerate(parts)
    }


def settings_of(
    loads: tuple[Load, ...],
    arms: tuple[Speculation, ...],
    budget_s: float,
    keeping: Keeping,
    cards: Cards = Cards(),  # noqa: B008
) -> SearchSettings:
    rules = Rules(Objective(), fills_slots=True)
    return SearchSettings(
        arms, loads, rules, budget_s, dict.fromkeys((each.name for each in loads), 1),
        keeps_engines=keeping.how != VISITS, shares_process=False, cards=cards,
    )  # fmt: skip


def search(
    stage: Stage,
    path: Path,
    *,
    budget_s: float = 1200,
    keeping: Keeping = Keeping(ASLEEP),  # noqa: B008
    loads: tuple[Load, ...] = LOADS,
    arms: tuple[Speculation, ...] = ARMS,
    cards: Cards = Cards(),  # noqa: B008
) -> tuple[list[LoadOutcome], Journal]:
    settings = settings_of(loads, arms, budget_s, keeping, cards)
    lab = Lab(
        VLLM, requests_of(loads, None), stage.start, longest=6,  # type: ignore[arg-type]
        keeping=keeping, available_bytes=lambda: None, clock=lambda: stage.clock, cards=cards,
        other_starts=[stage.on(card) for card in cards.others],  # type: ignore[misc]
    )  # fmt: skip
    with Journal(path, {"header": 1}) as journal, lab:
        for load in loads:
            if load.name not in journal.answer_times:
                journal.add(lab.measure_answer(load))
        lab.blocks = requests_of(loads, journal)
        outcomes, _ = Search(settings, journal, lab.measure).run()
        return outcomes, journal


@pytest.mark.parametrize(("truths", "loads"), [(LOSING, LOADS), (WINNING, LOADS[:2])])
def test_no_engine_is_started_twice_and_the_rest_of_the_time_is_spent_measuring(
    truths: dict[str, Truth], loads: tuple[Load, ...], tmp_path: Path
) -> None:
    stage = Stage(truths)
    outcomes, journal = search(stage, tmp_path / "journal", loads=loads)
    assert set(stage.starts.values()) == {1}
    assert stage.clock <= 1200 + 90
    beside_starts = stage.clock - stage.start_s * stage.starts.total()
    assert stage.busy_s >= 0.9 * beside_starts, (stage.busy_s, beside_starts)
    expected = SHIP if truths is WINNING else DONT_SHIP
    for outcome in outcomes:
        assert outcome.standing.verdict is not None, outcome.result.name
        assert outcome.standing.verdict.decision == expected
    assert journal.starts_s() == pytest.approx(stage.start_s * stage.starts.total(), abs=20)


def test_an_engine_that_is_up_runs_the_first_blocks_of_all_loads(tmp_path: Path) -> None:
    stage = Stage(LOSING)
    _, journal = search(stage, tmp_path / "journal")
    first = [(each.arm, each.load) for each in journal.blocks.values() if each.block == 0]
    arms = list(dict.fromkeys(arm for arm, _ in first))
    loads = [each.name for each in LOADS]
    profiled = [pair for pair in first if pair[1] in loads]
    longest = ["off", "ngram k=6", "draft_model small k=6", "eagle head k=6"]
    assert arms[:4] == longest, "a short draft may not be worth a start"
    assert profiled[: 3 * 4] == [(arm, load) for arm in longest for load in loads]


def test_where_memory_is_short_the_baseline_stays_up(tmp_path: Path) -> None:
    stage = Stage(WINNING, start_s=20)
    few = Keeping(ASLEEP, most=3)
    outcomes, _ = search(stage, tmp_path / "journal", keeping=few, loads=LOADS[:1], budget_s=600)
    assert stage.starts["off"] == 1
    assert outcomes[0].standing.verdict is not None
    assert outcomes[0].standing.verdict.decision == SHIP


@pytest.mark.parametrize("field", ["dies_asleep", "does_not_wake", "loses_drafts", "other_memory"])
def test_an_engine_that_does_not_survive_its_sleep_is_a_result_of_its_arm(
    field: str, tmp_path: Path
) -> None:
    stage = replace(Stage(WINNING), **{field: ("eagle head k=6", "eagle head k=4")})
    outcomes, journal = search(stage, tmp_path / "journal", loads=LOADS[:2])
    assert set(stage.starts.values()) == {1}
    reasons = [each.reason for each in journal.failures.values()]
    assert any("asleep" in each or "wake up" in each for each in reasons), reasons
    assert outcomes[0].standing.best is not None
    assert outcomes[0].standing.verdict is not None


def test_another_kv_cache_after_a_sleep_is_told(tmp_path: Path) -> None:
    stage = replace(Stage(WINNING), other_memory=("eagle head k=6",))
    _, journal = search(stage, tmp_path / "journal", loads=LOADS[:1])
    reasons = {each.arm: each.reason for each in journal.failures.values()}
    words = "its KV cache has a size of 300 after its sleep, 600 before it"
    assert reasons == {"eagle head k=6": f"it did not wake up as it was ({words})"}


def test_a_gpu_that_holds_fewer_sleepers_than_planned_is_no_failure(tmp_path: Path) -> None:
    stage = replace(Stage(WINNING), start_s=20, sleepers_held=1)
    planned = Keeping(ASLEEP, most=5)
    outcomes, journal = search(stage, tmp_path / "journal", keeping=planned, loads=LOADS[:1])
    assert journal.failures == {}
    assert [what for what, _ in stage.events].count("crowded") == 1, "it is remembered"
    assert outcomes[0].standing.verdict is not None
    assert outcomes[0].standing.verdict.decision == SHIP


def test_engines_go_before_main_memory_is_used_up(tmp_path: Path) -> None:
    """40 GiB, of which an engine takes 5, and one as much as 15; the plan says 10 for each."""
    gib = 1 << 30
    stage = replace(Stage(WINNING), start_s=20)
    stage.memory = {"off": 5 * gib, "ngram k=6": 15 * gib}

    def free() -> int:
        return 40 * gib - sum(each.resident_bytes() for each in stage.up)

    pool = EnginePool(Keeping(ASLEEP, each_bytes=10 * gib), VLLM.capabilities().sleep, free)
    for name in ("off", "ngram k=6", "c", "d"):
        arm = Speculation("ngram", k=6) if name != "off" else OFF
        pool.get(name, lambda arm=arm, name=name: stage.start(arm, name), lambda engine: None)  # type: ignore[misc]
    stops = [name for what, name in stage.events if what == "stop"]
    assert stops == [], "20 GiB are free for the third, 19 for the fourth"
    stage.memory = {**stage.memory, "c": 9 * gib}
    pool.get("e", lambda: stage.start(OFF, "e"), lambda engine: None)  # type: ignore[arg-type, return-value]
    stops = [name for what, name in stage.events if what == "stop"]
    assert stops == ["off"], "10 GiB are free, and the largest takes 15"


def test_a_load_of_which_less_runs_than_it_names_is_said(tmp_path: Path) -> None:
    """An engine that takes 10 texts at a time; as slots are being filled, only one runs."""
    arms = tuple(arm for arm in ARMS if arm.method == "eagle")
    short: dict[str, Any] = {"loads": LOADS[1:], "arms": arms}
    stage = replace(Stage(WINNING), most_running={"eagle head k=6": 10})
    outcomes, journal = search(stage, tmp_path / "journal", **short)
    assert {each.running for each in journal.blocks.values() if each.load == "concurrency 4"} == {4}
    of_16 = [each for each in journal.blocks.values() if each.load.startswith("concurrency 16")]
    assert {each.running for each in of_16 if each.arm == "off"} == {16}
    assert {each.running for each in of_16 if each.arm == "eagle head k=6"} == {10}
    settings = settings_of(short["loads"], arms, 1200, Keeping(ASLEEP))
    results = make_results(RunContext({}, "vllm", "target"), settings, outcomes, (), journal)
    told = [note for note in results.notes if "were running on average" in note]
    assert len(told) == 1
    assert told[0].startswith("concurrency 16: fewer requests were running on average")
    assert "as the engine counts: eagle head k=6 10.0 [10.0, 10.0]; it may" in told[0]
    running = {arm.name: arm.running for arm in results.loads[1].arms}
    assert running["off"] == 16
    assert running["eagle head k=6"] == 10
    with Journal(tmp_path / "journal", {"header": 1}) as again:
        assert again.blocks == journal.blocks


def visited(stage: Stage, path: Path, budget_s: float = 900) -> tuple[LoadOutcome, list[str]]:
    """The outcome of one load, and the order in which engines were started."""
    arms = tuple(arm for arm in ARMS if arm.method == "eagle")
    outcomes, _ = search(
        stage,
        path,
        keeping=Keeping(VISITS, 1),
        loads=LOADS[:1],
        arms=arms,
        budget_s=budget_s,
    )
    return outcomes[0], [name for what, name in stage.events if what == "start"]


def test_one_engine_at_a_time_is_visited_around_a_baseline_that_is_visited_again(
    tmp_path: Path,
) -> None:
    outcome, starts = visited(Stage(WINNING, start_s=20), tmp_path / "journal")
    best = outcome.result.best
    assert starts[:3] == ["off", "eagle head k=6", "eagle head k=4"], "the profile"
    assert starts[3:] == ["off", best, "off", best, "off"]
    assert outcome.standing.verdict is not None
    assert outcome.standing.verdict.decision == SHIP


@pytest.mark.parametrize("slower", [1.5, 2.0, 3.0, 4.0])
def test_without_the_last_visit_there_is_no_verdict(slower: float, tmp_path: Path) -> None:
    """A machine that becomes slower after the profile takes longer than was planned."""
    stage = Stage(WINNING, start_s=30, slowness=lambda start: slower if start > 3 else 1.0)
    outcome, starts = visited(stage, tmp_path / "journal", 420)
    assert 1 < starts.count("off") < 4, starts  # the first is of the profile
    verdict = outcome.standing.verdict
    assert verdict is None or verdict.decision == INCONCLUSIVE


@pytest.mark.parametrize("keeping", [Keeping(VISITS, 1), Keeping(ASLEEP)])
@pytest.mark.parametrize(("num_loads", "num_arms"), [(1, 1), (2, 9)])
def test_a_budget_in_which_no_arm_can_be_judged_names_one_in_which_all_loads_are(
    keeping: Keeping, num_loads: int, num_arms: int, tmp_path: Path
) -> None:
    loads, arms = LOADS[:num_loads], ARMS[:num_arms]
    short: dict[str, Any] = {"keeping": keeping, "loads": loads, "arms": arms}
    stage = Stage(WINNING, start_s=30)
    outcomes, journal = search(stage, tmp_path / "journal", budget_s=90, **short)
    assert stage.starts == {"off": 1}, "nothing was started in vain"
    settings = settings_of(loads, arms, 90, keeping)
    results = make_results(RunContext({}, "vllm", "target"), settings, outcomes, (), journal)
    assert not results.is_complete
    over = "the time was over before anything was compared with off"
    assert results.notes[0] == f"concurrency 1: {over}"
    assert results.enough_s is not None
    done = len(journal.blocks)
    words = f"--budget {format_duration(results.enough_s)} would have been enough"
    assert results.notes[-1].startswith(words)
    assert results.notes[-1].endswith(f"goes on with the {done} blocks that there are")
    outcomes, _ = search(stage, tmp_path / "journal", budget_s=results.enough_s, **short)
    assert all(each.standing.verdict is not None for each in outcomes)


@pytest.mark.parametrize("budget_s", [300, 400, 500, 600])
def test_where_time_is_short_the_first_loads_are_judged_not_the_last(
    budget_s: float, tmp_path: Path
) -> None:
    outcomes, _ = search(Stage(WINNING), tmp_path / "journal", budget_s=budget_s)
    is_judged = [each.standing.verdict is not None for each in outcomes]
    assert is_judged == sorted(is_judged, reverse=True)
    assert is_judged[0] == (budget_s > 300), "off, one start and a final of the first take longer"


def test_off_that_fails_in_the_final_leaves_nothing_to_judge_by(tmp_path: Path) -> None:
    stage = replace(Stage(WINNING), does_not_wake=("off",))
    for _ in range(2):  # also when it is continued
        outcomes, _ = search(stage, tmp_path / "journal", loads=LOADS[:1])
        assert outcomes[0].standing.verdict is None
        assert "off" in outcomes[0].standing.failed


def test_a_machine_that_slowly_changes_favours_nobody(tmp_path: Path) -> None:
    steady, _ = visited(Stage(WINNING, start_s=20), tmp_path / "steady")
    drifting = Stage(WINNING, start_s=20, slowness=lambda start: 1.03**start)
    drifted, _ = visited(drifting, tmp_path / "drifting")
    plain, moved = steady.result.measured, drifted.result.measured
    assert plain is not None
    assert moved is not None
    assert plain.low is not None
    assert moved.low is not None
    assert moved.high is not None
    assert moved.estimate == pytest.approx(plain.estimate, rel=0.02)
    assert moved.low < plain.low, "what visits differ by is in the interval"
    assert moved.low < plain.estimate < moved.high


class Killed(Exception):
    pass


@dataclass
class MortalStage(Stage):
    """It is killed before its last start."""

    num_starts: int = 0

    def start(self, speculation: Speculation, name: str, card: int = 0) -> StagedEngine:
        if self.starts.total() == self.num_starts:
            raise Killed
        return super().start(speculation, name, card)


def test_killed_and_continued_nothing_is_measured_twice(tmp_path: Path) -> None:
    short: dict[str, Any] = {"loads": LOADS[:2], "budget_s": 500}
    whole, _ = search(Stage(WINNING, start_s=20), tmp_path / "whole", **short)
    for num_starts in (2, 4, 6, 8, 99):
        stage = MortalStage(WINNING, start_s=20, num_starts=num_starts)
        with suppress(Killed):
            outcomes, journal = search(stage, tmp_path / "killed", **short)
        assert set(stage.starts.values()) <= {1}
    lines = (tmp_path / "killed").read_text().splitlines()
    kept = (journal.blocks, journal.failures, journal.answer_times, journal.starts)
    assert len(lines) == 1 + sum(map(len, kept))
    assert [each.result.best for each in outcomes] == [each.result.best for each in whole]


def test_in_a_final_that_is_continued_both_engines_are_started_first(tmp_path: Path) -> None:
    """Also where a block of one of them alone is missing: off must not be the older one."""
    planted, (arm,) = Planted({"eagle": Truth(0.8, 0.08)}), arms_of(("eagle",), range(4, 5))
    settings = SearchSettings((arm,), LOADS[:1], Rules(Objective()), 300)
    measured: list[str] = []
    prepared: list[set[Speculation]] = []

    def measure(load: Load, arm: Speculation, block: int) -> Block | Failure:
        measured.append(load.part)
        if measured.count(FINAL) == 4:
            raise Killed
        return planted.measure(load, arm, block)

    def prepare(load: Load, arms: Sequence[Speculation]) -> None:
        prepared.append({*arms})

    for _ in range(2):
        prepared.clear()
        with Journal(tmp_path / "journal", {"header": 1}) as journal, suppress(Killed):
            Search(settings, journal, measure, prepare=prepare).run()
    assert measured.count(FINAL) > 4
    assert prepared[0] == {OFF, arm}
