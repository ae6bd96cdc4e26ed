"""Searches on planted engines that write junk, or near-ties, or what they should."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outdraft.decide.texts import Agreement
from outdraft.report.tables import best_line, tune_table
from outdraft.speculation import OFF, Speculation
from outdraft.tune.arm import Load, name_of
from outdraft.tune.journal import Block, Failure, Journal
from outdraft.tune.results import BEST, FAILED
from outdraft.tune.rules import Objective
from outdraft.tune.texts import next_again, other_texts, texts_part

from .planted import Planted, Truth, arms_of
from .test_search import FOUR, ONE, Killed, run, timeless

FAST, SLOWER = Truth(chance=0.95, draft=0.01), Truth(chance=0.6, draft=0.05)
TWO = arms_of(("ngram", "suffix"), range(3, 6))
NGRAM = arms_of(("ngram",), range(3, 6))


def again_requests(folder: Path, load: Load) -> list[tuple[int, int]]:
    with Journal(folder / "journal.jsonl", {"seed": 0}) as journal:
        blocks = journal.of(texts_part(load).name, name_of(OFF))
    return [(each.block, each.index) for block in blocks for each in block.records]


@pytest.mark.parametrize("objective", ["e2e", "throughput"])
@pytest.mark.parametrize("load", [ONE, FOUR], ids=str)
def test_junk_at_twice_the_speed_is_not_shipped(tmp_path: Path, load: Load, objective: str) -> None:
    planted = Planted({"ngram": FAST}, junk=("ngram",))
    results = run(tmp_path, planted, loads=(load,), arms=NGRAM, objective=Objective(objective))
    result = results.loads[0]
    assert result.verdict is not None
    assert result.verdict.decision == "DON'T SHIP"
    assert "writes other texts: 0 of " in result.verdict.reasons[0]
    assert result.measured is not None
    assert (result.measured.low or 0) > 2
    assert result.text_floor is not None
    assert result.text_floor.num_compared == len(again_requests(tmp_path, load)) >= 8
    assert result.text_floor.share == 1
    best = result.best_arm
    assert best is not None
    assert best.texts is not None
    assert best.texts.num_identical == 0
    assert not result.pays_for_all
    said = " · DON'T SHIP · writes other texts · leave it off: it writes other texts at "
    assert said in best_line(results)
    assert "it writes other texts: 0 of " in tune_table(results)
    assert "  e.g. prompt 'chat-" in tune_table(results)


def test_the_same_text_at_twice_the_speed_is_shipped(tmp_path: Path) -> None:
    result = run(tmp_path, Planted({"ngram": FAST}), arms=NGRAM).loads[0]
    assert result.verdict is not None
    assert result.verdict.decision == "SHIP"
    assert result.text_floor is None, "where all texts agree nothing is asked again"
    assert again_requests(tmp_path, ONE) == []
    assert result.best_arm is not None
    assert result.best_arm.texts is not None
    assert result.best_arm.texts.share == 1


def test_an_arm_that_writes_junk_leaves_the_race_to_the_others(tmp_path: Path) -> None:
    planted = Planted({"ngram": FAST, "suffix": SLOWER}, junk=("ngram",))
    results = run(tmp_path, planted, arms=TWO)
    result = results.loads[0]
    assert result.verdict is not None
    assert result.verdict.decision == "SHIP"
    states = {arm.name: (arm.state, arm.reason) for arm in result.arms}
    assert result.best is not None
    assert result.best.startswith("suffix")
    assert states[result.best][0] == BEST
    for arm in NGRAM:
        state, reason = states[name_of(arm)]
        assert state == FAILED
        assert "writes other texts: 0 of " in reason
    names = ", ".join(map(name_of, NGRAM))
    assert any(f"failed: {names} (ngram k=" in note for note in results.notes)


@pytest.mark.parametrize("load", [ONE, FOUR], ids=str)
def test_near_ties_of_both_are_not_blamed(tmp_path: Path, load: Load) -> None:
    planted = Planted({"ngram": FAST, "suffix": SLOWER}, near_ties=0.1)
    results = run(tmp_path, planted, arms=TWO, loads=(load,))
    result = results.loads[0]
    assert result.verdict is not None
    assert result.verdict.decision == "SHIP"
    assert not any(arm.state == FAILED for arm in result.arms)
    assert result.text_floor is not None
    assert result.best_arm is not None
    assert result.best_arm.texts is not None
    assert 0.6 < result.best_arm.texts.share < 1
    told = " | ".join(result.verdict.reasons)
    assert "greedy texts are the baseline's; its own, sent again, " in told


def test_a_lossy_rule_is_not_judged_by_its_texts(tmp_path: Path) -> None:
    lossy = tuple(replace(arm, rule="typical") for arm in NGRAM)
    result = run(tmp_path, Planted({"ngram": FAST}, junk=("ngram",)), arms=lossy).loads[0]
    assert result.verdict is not None
    assert result.verdict.decision == "SHIP"
    assert "texts differ by design (a lossy rule) and are not judged" in result.verdict.reasons
    assert again_requests(tmp_path, ONE) == []


def test_a_baseline_that_cannot_be_asked_again(tmp_path: Path) -> None:
    """No floor: nothing is clear about the texts, and nothing ships."""
    planted = Planted({"ngram": FAST}, junk=("ngram",))

    def measure(load: Load, arm: Speculation, block: int) -> Block | Failure:
        if load == texts_part(ONE):
            return Failure(load.name, name_of(arm), "gone", 1.0)
        return planted.measure(load, arm, block)

    result = run(tmp_path, planted, arms=NGRAM, measure=measure).loads[0]
    assert result.verdict is not None
    assert result.verdict.decision == "INCONCLUSIVE"
    assert "may write other texts" in result.verdict.reasons[0]


def test_killed_before_any_of_its_blocks_it_ends_the_same(tmp_path: Path) -> None:
    planted = Planted({"ngram": FAST, "suffix": SLOWER}, junk=("ngram",), near_ties=0.05)
    short: dict[str, Any] = {"arms": TWO, "loads": (FOUR,), "budget_s": 60}
    whole = run(tmp_path / "whole", planted, **short)
    assert whole.loads[0].text_floor is not None

    def killed(load: Load, arm: Speculation, block: int) -> Block | Failure:
        nonlocal is_alive
        is_alive = not is_alive
        if is_alive:
            raise Killed
        return planted.measure(load, arm, block)

    is_alive, resumed = True, None
    while resumed is None:
        with suppress(Killed):
            resumed = run(tmp_path / "killed", planted, measure=killed, **short)
    assert timeless(resumed) == timeless(whole)


class TestWhatIsAskedAgain:
    planted = Planted({"ngram": FAST, "suffix": SLOWER}, junk=("ngram",))

    def block(self, arm: Speculation, number: int = 0) -> Block:
        measured = self.planted.measure(FOUR, arm, number)
        assert isinstance(measured, Block)
        return measured

    def test_nothing_before_texts_differ(self) -> None:
        junk, good = arms_of(("ngram", "suffix"), range(3, 4))
        off = [self.block(OFF, number) for number in range(6)]
        race = {"off": off, name_of(good): [self.block(good)]}
        assert next_again((junk, good), [race], []) is None
        race |= {name_of(junk): [self.block(junk)]}
        assert next_again((junk, good), [race], []) == 0
        assert next_again((replace(junk, rule="typical"), good), [race], []) is None
        final = {"off": off, name_of(good): [self.block(good)]}
        assert next_again((good,), [final, race], []) is None

    def test_until_there_are_enough(self) -> None:
        (junk,) = arms_of(("ngram",), range(3, 4))
        race = {"off": [self.block(OFF, 0)], name_of(junk): [self.block(junk)]}
        first = [self.block(OFF, 0)]
        assert len(first[0].records) == 8
        assert next_again((junk,), [race], first) is None, "off has no second block yet"
        race["off"] = [self.block(OFF, number) for number in range(9)]
        assert next_again((junk,), [race], first) == 1
        assert next_again((junk,), [race], race["off"][:2]) is None
        hot = [replace(each, records=tuple(replace(r, temperature=1.0) for r in each.records))
               for each in race["off"]]  # fmt: skip
        assert next_again((junk,), [race], hot[:3]) == 3
        assert next_again((junk,), [race], hot[:4]) is None, "four blocks are the most"

    def test_a_part_of_its_own_at_another_batch_size(self) -> None:
        assert texts_part(ONE) == Load(concurrency=4, part="texts of concurrency 1")
        assert texts_part(FOUR).name == "concurrency 1, texts of concurrency 4"
        assert texts_part(Load(rate=2.0)).name == "concurrency 1, texts of 2 requests/s"

    def test_who_writes_other_texts(self) -> None:
        junk, good = arms_of(("ngram", "suffix"), range(3, 4))
        blocks = {name_of(arm): [self.block(arm)] for arm in (OFF, junk, good)}
        assert other_texts((junk, good), blocks, None) == {}
        found = other_texts((junk, good), blocks, Agreement(16, 16))
        assert found == {
            name_of(junk): "ngram k=3 writes other texts: 0 of 8 greedy texts are the baseline's; "
            "its own, sent again, 16 of 16"
        }
        siblings = (*NGRAM, good)
        assert other_texts(siblings, blocks, Agreement(16, 16)).keys() == set(map(name_of, NGRAM))

    def test_who_writes_other_texts_than_off_on_its_own_card(self) -> None:
        (good,) = arms_of(("suffix",), range(3, 4))
        other_off = replace(
            self.block(OFF),
            records=tuple(
                replace(each, text=f"not {each.text}") for each in self.block(OFF).records
            ),
        )
        blocks = {name_of(OFF): [other_off], name_of(good): [self.block(good)]}
        floor = Agreement(16, 16)
        assert other_texts((good,), blocks, floor)
        assert not other_texts((good,), blocks, floor, {name_of(good): [self.block(OFF)]})
