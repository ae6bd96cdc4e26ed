"""Several GPUs: engines on cards of their own, and differences of cards that are no speedups."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from outdraft.decide.verdict import DONT_SHIP, SHIP
from outdraft.loadgen.endpoint import Request
from outdraft.loadgen.load import LoadRun
from outdraft.speculation import Speculation
from outdraft.tune.arm import name_of
from outdraft.tune.cards import Cards, deal_cards
from outdraft.tune.keeping import Keeping
from outdraft.tune.options import ASLEEP
from outdraft.tune.outcome import LoadOutcome

from .planted import Truth, arms_of
from .staged import Stage, StagedEngine
from .test_engines_stay import LOADS, LOSING, WINNING, Killed, MortalStage, search

ARMS = arms_of(("ngram", "eagle"), range(4, 7, 2))
TWO = deal_cards(ARMS, ("0", "1"), 1, 3)
FEW = Keeping(ASLEEP, most=3)  # off and two arms
EVEN = {**LOSING, "eagle": Truth(0.0, 0.0)}  # it drafts for nothing, and nothing is accepted
SLOWER = 1.1


def run(stage: Stage, path: Path, cards: Cards) -> LoadOutcome:
    return search(stage, path, keeping=FEW, loads=LOADS[:1], arms=ARMS, cards=cards)[0][0]


def test_arms_are_dealt_to_as_many_cards_as_hold_them() -> None:
    every = arms_of(("ngram", "draft_model", "eagle"), range(2, 7, 2))
    gpus = ("0", "1", "2", "3")
    assert deal_cards(every, gpus, 1, None) == Cards(), "all are up on one"
    assert deal_cards(every, gpus, 1, 10) == Cards()
    assert deal_cards(every, gpus[:1], 1, 3) == Cards(), "there is no other"
    assert deal_cards(every, gpus, 1, 1) == Cards(), "an arm would be without its off"
    assert deal_cards(every, gpus, 1, 7).gpus == [("0",), ("1",)]
    three = deal_cards(every, gpus, 1, 4)
    assert three.gpus == [("0",), ("1",), ("2",)]
    by_method = {arm.method: three.of(arm) for arm in every}
    assert by_method == {"ngram": 0, "draft_model": 1, "eagle": 2}
    assert all(three.of(arm) == by_method[arm.method] for arm in every), "with all their lengths"
    assert deal_cards(every, gpus, 2, 4).gpus == [("0", "1"), ("2", "3")]
    assert three.of_name(f"{name_of(every[-1])} scheduled 1:6,5:2") == 2
    assert three.of_name("off") == 0
    assert "3 cards (GPUs 0; 1; 2)" in three.note
    assert Cards().note == ""


def test_further_cards_are_for_want_of_room_on_a_gpu_not_of_main_memory() -> None:
    every = arms_of(("ngram", "draft_model", "eagle"), range(2, 7, 2))
    gpus = ("0", "1", "2", "3")
    assert len(deal_cards(every, gpus, 1, 4, 12).gpus) == 3, "nine arms and three offs"
    assert len(deal_cards(every, gpus, 1, 4, 11).gpus) == 2, "four on each of two"
    assert deal_cards(every, gpus, 1, 4, 7) == Cards()
    assert deal_cards(every, gpus, 1, 4, 4) == Cards(), "another card is only one more off"
    assert len(deal_cards(every, gpus, 1, 6, 11).gpus) == 2, "all of them, the last not full"


@pytest.mark.parametrize("of_cards", [(1.0, SLOWER), (SLOWER, 1.0)])
@pytest.mark.parametrize("truths", [WINNING, LOSING, EVEN])
def test_a_slower_card_is_neither_a_speedup_nor_a_loss(
    truths: dict[str, Truth], of_cards: tuple[float, float], tmp_path: Path
) -> None:
    same = run(Stage(truths, start_s=20), tmp_path / "same", Cards())
    stage = Stage(truths, start_s=20, of_cards=of_cards)
    found = run(stage, tmp_path / "two", TWO)
    assert found.result.best is not None
    plain, moved = (
        {arm.name: arm.measured.estimate for arm in each.result.arms if arm.measured}
        for each in (same, found)
    )
    for name in plain.keys() & moved.keys():
        assert moved[name] == pytest.approx(plain[name], rel=0.03), name
    for name, predicted in same.standing.forecast.items():
        assert found.standing.forecast[name] == pytest.approx(predicted, rel=0.05), name
    best = found.result.best
    assert best in moved
    assert found.standing.verdict is not None
    decision = found.standing.verdict.decision
    assert decision == SHIP if truths is WINNING else decision != SHIP
    if truths is LOSING:
        assert decision == DONT_SHIP


def test_each_card_has_its_off_and_only_its_arms(tmp_path: Path) -> None:
    stage = Stage(WINNING, start_s=20, of_cards=(1.0, SLOWER))
    outcomes, journal = search(
        stage, tmp_path / "journal", keeping=FEW, loads=LOADS[:2], arms=ARMS, cards=TWO
    )
    assert set(stage.starts.values()) == {1}, "four arms and two offs: three on each card"
    names = {name for what, name in stage.events if what == "start"}
    assert {"off", "off on card 2"} <= names
    assert all(each.standing.verdict is not None for each in outcomes)
    for outcome in outcomes:
        assert outcome.result.best is not None
        assert outcome.result.best.startswith("eagle"), "which is on the second card"
    beside = journal.of("concurrency 1 on card 2", "off")
    arms = {
        each.block
        for each in journal.blocks.values()
        if each.load == "concurrency 1" and each.arm.startswith("eagle")
    }
    assert {each.block for each in beside} == arms


class OtherTexts(StagedEngine):
    """On the first card every text has a word more."""

    def send(self, requests: Sequence[Request], concurrency: int | None, k: int | None) -> LoadRun:
        run = super().send(requests, concurrency, k)
        if self.card:
            return run
        return replace(
            run, records=tuple(replace(each, text=f"So {each.text}") for each in run.records)
        )


class StageOfTexts(Stage):
    def start(self, speculation: Speculation, name: str, card: int = 0) -> StagedEngine:
        super().start(speculation, name, card)
        self.up[-1] = OtherTexts(self, speculation, name, card)
        return self.up[-1]


def test_texts_are_compared_with_those_of_off_on_the_same_card(tmp_path: Path) -> None:
    found = run(StageOfTexts(WINNING, start_s=20, of_cards=(1.0, 1.0)), tmp_path / "journal", TWO)
    assert found.result.best is not None
    assert found.result.best.startswith("eagle"), "which is on the second card"
    assert found.standing.verdict is not None
    assert found.standing.verdict.decision == SHIP
    assert found.result.text_floor is None, "nothing differs: off is not asked again"


def test_killed_and_continued_on_two_cards(tmp_path: Path) -> None:
    whole = run(Stage(WINNING, start_s=20, of_cards=(1.0, SLOWER)), tmp_path / "whole", TWO)
    for num_starts in (1, 2, 3, 4, 99):
        stage = MortalStage(WINNING, start_s=20, of_cards=(1.0, SLOWER), num_starts=num_starts)
        with suppress(Killed):
            found = run(stage, tmp_path / "killed", TWO)
    assert found.result.best == whole.result.best
    lines = [json.loads(line) for line in (tmp_path / "killed").read_text().splitlines()[1:]]
    blocks = [each["block"] for each in lines if "block" in each]
    keys = [(each["load"], each["arm"], each["block"]) for each in blocks]
    assert len(set(keys)) == len(keys), "nothing is measured twice"
    assert any(load.endswith("on card 2") for load, _, _ in keys)


def test_an_off_that_fails_on_its_card_leaves_the_others(tmp_path: Path) -> None:
    stage = Stage(WINNING, start_s=20, of_cards=(1.0, SLOWER), dies_asleep=("off on card 2",))
    found = run(stage, tmp_path / "journal", TWO)
    assert found.result.best is not None
    assert found.result.best.startswith("ngram")
    assert found.standing.verdict is not None
