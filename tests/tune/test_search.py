"""Whole searches on planted engines: the right arm, few requests, the same after a kill."""

from __future__ import annotations

import random
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outdraft.errors import OptionError
from outdraft.speculation import OFF, Speculation
from outdraft.tune.answer import answer_of
from outdraft.tune.arm import Load, name_of
from outdraft.tune.journal import Block, Failure, Journal
from outdraft.tune.outcome import RunContext, make_results
from outdraft.tune.results import BEST, FAILED, Results
from outdraft.tune.rules import Objective, Rules, SearchSettings
from outdraft.tune.search import Search
from outdraft.tune.wording import details

from .planted import Planted, Truth, arms_of

FLAT = Truth(chance=0.8, draft=0.08)
STEEP = Truth(chance=0.9, draft=0.02, verify=lambda tokens, running: 1 + 0.05 * (tokens - 1))
POOR = Truth(chance=0.2, draft=0.3)
PER_TOKEN = Objective("tpot")
METHODS = ("ngram", "draft_model", "eagle")
ONE, FOUR, MANY = Load(concurrency=1), Load(concurrency=4), Load(concurrency=32)


def run(
    folder: Path,
    planted: Planted,
    *,
    loads: tuple[Load, ...] = (ONE,),
    budget_s: float = 1e6,
    objective: Objective = PER_TOKEN,
    arms: tuple[Speculation, ...] = arms_of(METHODS, range(2, 9)),
    measure: Any = None,
    has_schedule: bool = False,
) -> Results:
    settings = SearchSettings(
        arms, loads, Rules(objective), budget_s, schedule_methods=METHODS if has_schedule else ()
    )
    context = RunContext({}, "planted", "target")
    with Journal(folder / "journal.jsonl", {"seed": 0}) as journal:
        outcomes, schedule = Search(settings, journal, measure or planted.measure).run()
        return make_results(context, settings, outcomes, schedule, journal)


def truth_of(planted: Planted, arm: Speculation, load: Load) -> float:
    return planted.truths[arm.method].speedup(arm.k, load.concurrency or 1)


@pytest.mark.parametrize(
    "truths",
    [
        {"ngram": POOR, "draft_model": FLAT, "eagle": STEEP},
        {"ngram": STEEP, "draft_model": POOR, "eagle": FLAT},
        {"ngram": POOR, "draft_model": Truth(0.6, 0.1), "eagle": Truth(0.7, 0.15)},
    ],
)
def test_the_best_arm_with_few_requests(tmp_path: Path, truths: dict[str, Truth]) -> None:
    planted = Planted(truths)
    results = run(tmp_path, planted)
    arms = arms_of(METHODS, range(2, 9))
    best = max(truth_of(planted, arm, ONE) for arm in arms)
    load = results.loads[0]
    chosen = next(arm for arm in arms if name_of(arm) == load.best)
    assert truth_of(planted, chosen, ONE) >= 0.97 * best
    assert load.verdict is not None
    assert load.verdict.decision == ("SHIP" if best > 1.05 else "DON'T SHIP")
    exhaustive = (len(arms) + 1) * 20 * 8
    assert results.num_requests <= exhaustive / 3
    for arm in load.arms[1:]:
        assert arm.predicted is not None
        spec = next(each for each in arms if name_of(each) == arm.name)
        assert arm.predicted == pytest.approx(truth_of(planted, spec, ONE), rel=0.15)


@pytest.mark.parametrize("budget", range(26, 38, 3))
def test_a_budget_that_allows_for_a_verdict_ends_with_one(tmp_path: Path, budget: int) -> None:
    """Arms that are as good as each other take turns in the lead; the time is over soon."""
    planted = Planted({"ngram": FLAT, "draft_model": FLAT, "eagle": FLAT}, noise=0.15)
    block_s = planted.measure(ONE, OFF, 0).duration_s
    load = run(tmp_path, planted, budget_s=budget * block_s).loads[0]
    assert load.verdict is not None
    assert load.verdict.decision == "SHIP"


def test_the_interval_that_is_shown_is_the_verdicts(tmp_path: Path) -> None:
    planted = Planted({"ngram": POOR, "eagle": FLAT})
    arms = arms_of(("ngram", "eagle"), range(2, 9))
    load = run(tmp_path, planted, arms=arms, objective=Objective("e2e")).loads[0]
    best = next(arm for arm in load.arms if arm.name == load.best)
    assert best.measured is not None
    assert best.measured.level == 0.95, "it was chosen by other blocks"
    assert load.verdict is not None
    shown = f"speedup {best.measured.estimate:.2f} [{best.measured.low:.2f}, "
    assert f"{shown}{best.measured.high:.2f}]" in load.verdict.reasons[0]
    others = [arm.measured for arm in load.arms if arm.measured and arm is not best]
    assert others
    assert all(each.level > 0.95 for each in others), "those that raced share the error"


def test_nothing_pays(tmp_path: Path) -> None:
    planted = Planted({"ngram": POOR, "draft_model": POOR, "eagle": POOR})
    load = run(tmp_path, planted).loads[0]
    assert load.verdict is not None
    assert load.verdict.decision == "DON'T SHIP"


def test_load_decides_and_the_schedule_says_so(tmp_path: Path) -> None:
    """Verifying is free for one request, and costs by the token for many."""
    crowded = Truth(0.8, 0.02, lambda tokens, running: 1 + max(0, running * tokens - 32) / 16)
    planted = Planted({"eagle": crowded})
    arms = arms_of(("eagle",), range(2, 9))
    results = run(tmp_path, planted, loads=(ONE, MANY), arms=arms, has_schedule=True)
    ks = [next(a.speculation.k for a in load.arms if a.name == load.best)
          for load in results.loads]  # fmt: skip
    assert ks[0] >= 6
    assert ks[1] == 2
    assert [load.verdict.decision for load in results.loads if load.verdict] == [
        "SHIP",
        "DON'T SHIP",
    ]
    (*few, k), many = results.schedule
    assert (few, many) == ([1, 6], (7, 4096, 0))
    assert k == ks[0], "the one that was judged"
    assert results.main_load == "concurrency 1"
    assert [each.load for each in results.scheduled] == ["concurrency 1", "concurrency 32"]
    assert results.scheduled[0].measured is not None
    assert results.scheduled[0].measured.estimate > 1.5, "the schedule is the last phase"


def test_where_another_proposer_pays_it_is_said_why_it_is_off(tmp_path: Path) -> None:
    """Verifying many tokens costs the first one its gain under load, and the second nothing."""
    steep = Truth(0.9, 0.0, lambda tokens, running: 1 + 0.2 * (running - 1) * (tokens - 1))
    planted = Planted({"eagle": steep, "ngram": Truth(0.6, 0.0)})
    arms = arms_of(("ngram", "eagle"), range(2, 5))
    results = run(tmp_path, planted, arms=arms, loads=(ONE, FOUR))
    first, second = results.loads
    assert (first.best or "").startswith("eagle")
    assert (second.best or "").startswith("ngram")
    assert results.schedule[-1][2] == 0
    why = "one server runs one proposer, so it is off there"
    [said] = [each for each in details(answer_of(results)) if why in each]
    assert said.startswith(f"At 4 requests at a time {second.best} pays, ")


def test_an_arm_that_fails_is_a_result_of_that_arm(tmp_path: Path) -> None:
    reason = "vllm ran out of memory: CUDA out of memory"
    planted = Planted(
        {"ngram": FLAT, "draft_model": STEEP}, failing={"draft_model small k=8": reason}
    )
    results = run(tmp_path, planted, arms=arms_of(("ngram", "draft_model"), range(2, 9)))
    states = {arm.name: (arm.state, arm.reason) for arm in results.loads[0].arms}
    assert states["draft_model small k=8"] == (FAILED, reason)
    # The next shorter one stands in for it.
    assert (results.loads[0].best or "").startswith("draft_model")
    assert BEST in [state for state, _ in states.values()]


def test_the_baseline_must_run(tmp_path: Path) -> None:
    arms = arms_of(("ngram",), range(2, 4))
    with pytest.raises(OptionError, match="the baseline cannot be measured at concurrency 1: died"):
        run(tmp_path, Planted({"ngram": FLAT}, failing={"off": "died"}), arms=arms)


def failing_from(planted: Planted, name: str, block: int, load: Load = ONE) -> Any:
    def measure(where: Load, arm: Speculation, number: int) -> Block | Failure:
        is_there = (where.concurrency, where.part) == (load.concurrency, load.part)
        if is_there and name_of(arm) == name and number >= block:
            return Failure(where.name, name, "died", 2.0)
        return planted.measure(where, arm, number)

    return measure


@pytest.mark.parametrize("block", [4, 5])
def test_who_takes_the_place_of_a_finalist_runs_beside_off_of_the_same_block(
    tmp_path: Path, block: int
) -> None:
    near = Truth(0.8, 0.02)  # the longest drafts are within a few percent of each other
    planted = Planted({"eagle": near}, noise=0.2)
    failing = failing_from(planted, "eagle head k=7", block)
    order: list[tuple[str, int]] = []

    def measure(load: Load, arm: Speculation, number: int) -> Block | Failure:
        if not load.part:
            order.append((name_of(arm), number))
        return failing(load, arm, number)

    arms = arms_of(("eagle",), range(2, 9))
    run(tmp_path, planted, arms=arms, measure=measure, budget_s=8 * 60)
    assert ("eagle head k=7", block) in order
    numbers = [number for _, number in order]
    assert numbers == sorted(numbers), "nothing goes back to earlier blocks"
    assert all(("off", number) in order for number in numbers)
    assert any(number >= block for name, number in order if name.endswith(("k=6", "k=8")))


def test_a_baseline_that_fails_under_another_load_leaves_the_first_its_answer(
    tmp_path: Path,
) -> None:
    planted = Planted({"eagle": STEEP})
    measure = failing_from(planted, "off", 0, FOUR)
    arms = arms_of(("eagle",), range(2, 4))
    results = run(tmp_path, planted, arms=arms, loads=(ONE, FOUR), measure=measure)
    first, second = results.loads
    assert first.verdict is not None
    assert first.verdict.decision == "SHIP"
    assert (second.best, second.verdict) == (None, None)
    assert second.arms[0].reason == "failed: died"
    assert results.notes[0].startswith("concurrency 4: off failed")


def test_a_baseline_that_fails_late_is_judged_by_what_there_is(tmp_path: Path) -> None:
    planted = Planted({"eagle": Truth(0.0, 0.005)})  # so near to off that it takes its time
    results = run(tmp_path, planted, arms=arms_of(("eagle",), range(2, 4)),
                  measure=failing_from(planted, "off", 7, ONE.in_part("final")))  # fmt: skip
    load = results.loads[0]
    assert load.verdict is not None
    assert load.verdict.decision == "INCONCLUSIVE"
    assert results.notes[0].startswith("concurrency 1: off failed")


def test_when_every_arm_fails_nobody_speaks_of_time(tmp_path: Path) -> None:
    arms = arms_of(("ngram",), range(2, 4))
    failing = {name_of(arm): "no such flag" for arm in arms}
    results = run(tmp_path, Planted({"ngram": FLAT}, failing=failing), arms=arms)
    assert results.notes == (
        "concurrency 1: every arm but off failed",
        "concurrency 1: failed: ngram k=3, ngram k=2 (no such flag)",
    )
    assert results.loads[0].best is None


def test_a_second_finalist_has_off_beside_it(tmp_path: Path) -> None:
    """The first one dies in its third block: off is measured anew beside the next."""
    planted = Planted({"eagle": Truth(0.8, 0.02)})
    order: list[tuple[str, str, int]] = []
    died: list[str] = []

    def measure(load: Load, arm: Speculation, number: int) -> Block | Failure:
        if load.part == "final":
            order.append((load.subject, name_of(arm), number))
            if not arm.is_off and number == 3 and (not died or died == [name_of(arm)]):
                died.append(name_of(arm))
                return Failure(load.name, name_of(arm), "died", 2.0)
        return planted.measure(load, arm, number)

    arms = arms_of(("eagle",), range(4, 9))
    load = run(tmp_path, planted, arms=arms, measure=measure, budget_s=8 * 80).loads[0]
    assert load.best not in (None, died[0])
    assert load.verdict is not None
    assert load.verdict.decision == "SHIP"
    second = [each[1:] for each in order if each[0] == load.best]
    assert {("off", 0), (load.best, 0)} <= set(second)
    numbers = [number for _, number in second]
    assert numbers == sorted(numbers), "in turns"


class Killed(BaseException):
    pass


TRUTHS = {"ngram": POOR, "eagle": STEEP}
SHORT: dict[str, Any] = {
    "loads": (ONE, FOUR), "budget_s": 300, "arms": arms_of(("ngram", "eagle"), range(2, 5))
}  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return run(tmp_path_factory.mktemp("whole"), Planted(TRUTHS), **SHORT)


@pytest.mark.parametrize("seed", range(10))
def test_killed_anywhere_it_ends_the_same(tmp_path: Path, seed: int, whole: Results) -> None:
    choose = random.Random(seed)
    planted = Planted(TRUTHS)
    folder = tmp_path / "killed"
    for _ in range(choose.randint(1, 4)):
        left = choose.randint(0, 7)  # fewer than there are, all together

        def measure(load: Load, arm: Speculation, block: int) -> Block | Failure:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return planted.measure(load, arm, block)

        with pytest.raises(Killed):
            run(folder, planted, measure=measure, **SHORT)
        journal = folder / "journal.jsonl"
        if choose.random() < 0.5:  # in the middle of a line
            journal.write_bytes(journal.read_bytes() + b'{"block": {"load": "conc')
    resumed = run(folder, planted, **SHORT)
    assert planted.num_measured == len((folder / "journal.jsonl").read_text().splitlines()) - 1, (
        "nothing twice, nothing lost"
    )
    assert timeless(resumed) == timeless(whole)


@pytest.mark.parametrize("budget_s", [72, 80, 88])
def test_killed_within_a_block_near_the_end_of_the_budget(tmp_path: Path, budget_s: int) -> None:
    """Blocks take longer or shorter than the one before, and what is left is asked arm by arm."""
    planted = Planted(TRUTHS)

    def measure(load: Load, arm: Speculation, block: int) -> Block | Failure:
        found = planted.measure(load, arm, block)
        seconds = 1 + zlib.crc32(f"{name_of(arm)}/{block}".encode()) % 7
        return replace(found, duration_s=float(seconds))

    def killed(load: Load, arm: Speculation, block: int) -> Block | Failure:
        if planted.num_measured == 2 * num_whole - 1:
            raise Killed
        return measure(load, arm, block)

    arms = arms_of(("ngram", "eagle"), range(2, 5))
    whole = run(tmp_path / "whole", planted, arms=arms, budget_s=budget_s, measure=measure)
    num_whole = planted.num_measured
    with pytest.raises(Killed):
        run(tmp_path / "killed", planted, arms=arms, budget_s=budget_s, measure=killed)
    resumed = run(tmp_path / "killed", planted, arms=arms, budget_s=budget_s, measure=measure)
    assert timeless(resumed) == timeless(whole)
    assert resumed.duration_s <= budget_s + 7


def timeless(results: Results) -> dict[str, Any]:
    data = results.to_json()
    return {key: data[key] for key in data if key not in ("started_at", "environment")}


def test_a_budget_ends_the_race(tmp_path: Path) -> None:
    like_off = Truth(0.0, 0.0)
    planted = Planted({"ngram": like_off, "draft_model": like_off, "eagle": like_off}, noise=0.15)
    results = run(tmp_path, planted, budget_s=200)
    assert not results.is_complete
    assert results.duration_s <= 200
    assert results.loads[0].best is not None
    assert any("time was over" in note for note in results.notes)


def test_a_budget_too_small_for_a_block(tmp_path: Path) -> None:
    """It is no mistake: what there is comes out, with the budget that would have been enough."""
    planted = Planted({"ngram": FLAT, "draft_model": FLAT, "eagle": FLAT})
    results = run(tmp_path, planted, budget_s=20)
    assert not results.is_complete
    assert results.duration_s <= 20
    assert results.num_requests == 16, "off and the first proposer"
    assert "concurrency 1: the time was over before anything was compared with off" in results.notes
    assert results.enough_s is not None
    assert run(tmp_path, planted, budget_s=results.enough_s).is_complete


def test_an_slo_nobody_meets(tmp_path: Path) -> None:
    planted = Planted({"ngram": FLAT})
    arms = arms_of(("ngram",), range(2, 4))
    far = Objective("goodput", {"ttft": 1.0})
    with pytest.raises(OptionError, match=r"--slo ttft=1: none .* nor 2 times that; loosen it"):
        run(tmp_path / "far", planted, objective=far, arms=arms)
    assert planted.num_measured == 2, "the first block of off and of the one proposer"
    assert [each.name for each in (tmp_path / "far").iterdir()] == ["journal.jsonl"]
    looser = Objective("goodput", {"ttft": 100.0})
    run(tmp_path / "far", planted, objective=looser, arms=arms, budget_s=70)
    lines = (tmp_path / "far" / "journal.jsonl").read_text().splitlines()
    assert planted.num_measured == len(lines) - 1 > 4, "it went on with what was there"
    fastest = _fastest_ms(tmp_path / "far")
    near = Objective("goodput", {"ttft": 0.999 * fastest})
    with pytest.raises(OptionError, match=r"none of the \d+ requests of any arm met it; loosen"):
        run(tmp_path / "near", planted, objective=near, arms=arms, budget_s=70)


def _fastest_ms(folder: Path) -> float:
    with Journal(folder / "journal.jsonl", {"seed": 0}) as journal:
        records = [each for block in journal.blocks.values() for each in block.records]
        return min((each.ttft_ns or 0) / 1e6 for each in records)


def test_told_step_costs_replace_a_second_point(tmp_path: Path) -> None:
    steps = {1: 0.02, 4: 0.02, 8: 0.03, 16: 0.05}
    stepped = Truth(0.8, 0.05, lambda tokens, running: {1: 1, 2: 1, 3: 1, 4: 1, 5: 1.125,
                    6: 1.25, 7: 1.375, 8: 1.5, 9: 1.625}[tokens])  # fmt: skip
    planted = Planted({"eagle": stepped}, step_seconds=steps)
    arms = arms_of(("eagle",), range(2, 9))
    results = run(tmp_path, planted, arms=arms)
    for arm, found in zip(arms, results.loads[0].arms[1:], strict=True):
        assert found.predicted == pytest.approx(stepped.speedup(arm.k, 1), rel=0.06)
    raced = [arm for arm in results.loads[0].arms if arm.measured is not None]
    assert len(raced) < 7
