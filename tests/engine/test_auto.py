"""Method auto: whatever the controller chooses, the text is the one of off."""

from __future__ import annotations

import random
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from pathlib import Path

import pytest

from outdraft import Engine, SamplingParams, Speculation, load_engine
from outdraft.engine.confidence import GRADES, Trust
from outdraft.engine.controller import (
    Candidate,
    Controller,
    DraftPlan,
    Outcome,
    StepTimes,
    Why,
    Wish,
)
from outdraft.engine.draft_lengths import EVERYBODY
from outdraft.engine.drafting import AutoDrafting, likeness_to_itself
from outdraft.engine.native.library import library
from outdraft.engine.outputs import Update
from outdraft.engine.sequence import Sequence, TimeObjective
from outdraft.errors import OptionError
from outdraft.speculation import OFF
from outdraft.step_costs import RoundCosts
from outdraft.testing.tiny_heads import tiny_head
from outdraft.testing.tiny_models import tiny_model

if library() is None:
    pytest.skip("the library is not compiled here", allow_module_level=True)

PROMPTS = [[17 * i % 300 + 20 for i in range(30)], [5, 6, 7, 8] * 6, [40, 41, 42]]
FEW = dict.fromkeys(range(40, 48), 9.0)  # texts that repeat themselves


class Dice(Controller):
    """Chooses at random among all that it may, and remembers what it was told."""

    def __init__(self, drafts: Seq[str], seed: int) -> None:
        super().__init__(RoundCosts({1: 0.01}))
        self._drafts = drafts
        self._random = random.Random(seed)
        self.candidates: list[Candidate] = []
        self.outcomes: list[Outcome] = []
        self.open: set[int] = set()

    def may_rest(self, ids: Seq[int]) -> bool:
        return False

    def wish(self, candidates: Seq[Candidate], *, other_tokens: int = 0) -> list[Wish]:
        self.candidates += candidates
        self.open |= {each.id for each in candidates}
        self.asked = list(candidates)
        wishes = []
        for each in candidates:
            k = self._random.randint(0, min(each.room, 6)) if self._drafts else 0
            floor = self._random.choice([0.0, 0.3, 1.1])
            trust = Trust(tuple(grade / GRADES for grade in range(1, GRADES + 1)), floor)
            wishes.append(Wish(each.id, k, trust) if k else Wish(each.id))
        self.most = {each.id: each.k for each in wishes}
        return wishes

    def plan(self, drafted: Mapping[int, Seq[int]]) -> list[DraftPlan]:
        plans = []
        for each in self.asked:
            found = {lookup.proposer: lookup.length for lookup in each.lookups}
            if each.id in drafted:
                assert 0 < len(drafted[each.id]) <= self.most[each.id]
                assert all(0 <= grade < GRADES for grade in drafted[each.id])
                found[self._drafts[0]] = len(drafted[each.id])
            name = self._random.choice([None, *found])
            k = self._random.randint(0, min(each.room, found[name])) if name else 0
            plans.append(DraftPlan(each.id, name if k else None, k, Why.PAYS if k else Why.LOSES))
        return plans

    def observe(self, outcomes: Seq[Outcome], times: StepTimes) -> None:
        assert times.verification > 0
        assert set(times.drafting) <= set(self._drafts)
        self.outcomes += outcomes

    def release(self, id: int) -> None:
        self.open.discard(id)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("auto")
    target = tiny_model(folder / "target", "llama")
    return {
        "target": target,
        "draft_model": tiny_model(folder / "draft", "llama"),
        "eagle": tiny_head(folder / "head", target),
    }


def engine_of(models: dict[str, Path], draft: str | None, seed: int | None = None) -> Engine:
    name = None if draft is None else str(models[draft])
    engine = load_engine(
        str(models["target"]), Speculation("auto", draft=name), kv_cache_bytes=4 << 20
    )
    if seed is not None:
        assert isinstance(engine.drafting, AutoDrafting)
        engine.drafting._controller = Dice([] if draft is None else [draft], seed)
    return engine


def dice_of(engine: Engine) -> Dice:
    assert isinstance(engine.drafting, AutoDrafting)
    assert isinstance(engine.drafting._controller, Dice)
    return engine.drafting._controller


def texts_of(engine: Engine, params: SamplingParams) -> list[list[int]]:
    return [each.tokens for each in engine.generate(PROMPTS, params)]


HOT = SamplingParams(temperature=0.9, seed=3, top_p=0.95, max_tokens=40, ignore_eos=True)
COLD = SamplingParams(
    max_tokens=40, ignore_eos=True, logit_bias=FEW, repetition_penalty=1.1, min_tokens=3
)


@pytest.mark.parametrize("params", [HOT, COLD], ids=["hot", "cold"])
@pytest.mark.parametrize("draft", [None, "draft_model", "eagle"])
def test_any_choice_gives_the_text_of_off(
    models: dict[str, Path], draft: str | None, params: SamplingParams
) -> None:
    off = load_engine(str(models["target"]), OFF, kv_cache_bytes=4 << 20)
    engine = engine_of(models, draft, seed=1)
    assert texts_of(engine, params) == texts_of(off, params)
    dice = dice_of(engine)
    used = {each.proposer for each in dice.outcomes if each.drafted}
    assert draft is None or draft in used
    assert params is HOT or "suffix" in used  # hot texts of random weights repeat nothing
    assert not dice.open
    assert len(dice.candidates) == len(dice.outcomes)
    engine.pool.check([])


@pytest.mark.parametrize("draft", [None, "draft_model", "eagle"])
def test_its_own_choice_gives_the_text_of_off(models: dict[str, Path], draft: str | None) -> None:
    off = load_engine(str(models["target"]), OFF, kv_cache_bytes=4 << 20)
    engine = engine_of(models, draft)
    assert texts_of(engine, COLD) == texts_of(off, COLD)
    assert engine.drafting is not None
    drafted = [count for (name, _), count in engine.drafting.chosen.items() if name]
    assert sum(drafted) == engine.acceptance.num_drafts


def test_what_was_chosen_is_told(models: dict[str, Path]) -> None:
    engine = engine_of(models, "eagle", seed=2)
    updates = [each for each in engine.stream(PROMPTS[1], COLD) if isinstance(each, Update)]
    outcomes = dice_of(engine).outcomes
    told = [(each.proposer, each.num_drafted) for each in updates[1:]]
    # The last token has no candidate: it has no room for a draft.
    assert told[: len(outcomes)] == [(each.proposer, each.drafted) for each in outcomes]
    assert {each.why for each in updates[1:]} <= {Why.PAYS, Why.LOSES, ""}
    assert engine.drafting is not None
    for name, acceptance in engine.drafting.acceptance.items():
        own = [each for each in outcomes if each.proposer == name]
        assert acceptance.num_draft_tokens == sum(each.drafted for each in own)


def test_requests_and_slices_without_drafts(models: dict[str, Path]) -> None:
    engine = engine_of(models, "eagle", seed=3)
    engine.generate([PROMPTS[0]], COLD, k=0)
    assert dice_of(engine).candidates == []  # nobody is asked
    engine.add_request(PROMPTS[0], COLD, k=2, request_id="short")
    engine.add_request(PROMPTS[1], COLD, k=0, request_id="never")
    for _ in range(12):
        engine.step()
    rooms = {each.id: each.room for each in dice_of(engine).candidates}
    assert sorted(rooms.values()) == [0, 2]
    seen = len(dice_of(engine).candidates)
    engine.step(inverted=EVERYBODY)
    assert len(dice_of(engine).candidates) == seen


def test_a_candidate_says_what_is_known_of_its_text(models: dict[str, Path]) -> None:
    engine = engine_of(models, "draft_model", seed=4)
    engine.add_request(PROMPTS[1], COLD, objective=TimeObjective(tpot_s=1e-9))
    for _ in range(6):
        engine.step()
    first, *_, last = dice_of(engine).candidates
    assert first.context == len(PROMPTS[1])
    assert first.likeness == likeness_to_itself(PROMPTS[1]) > 0.5
    assert first.behind > 0
    assert [each.proposer for each in first.lookups] or last.lookups
    assert all(each.match >= 2 for each in last.lookups)
    assert first.lateness is not None
    assert first.lateness > 1


def test_lateness() -> None:
    sequence = Sequence(0, "r", 0, [1, 2, 3], 1, SamplingParams(), 0, frozenset())
    assert sequence.lateness(10) is None  # nothing is asked for
    sequence.objective = TimeObjective(tpot_s=0.02)
    assert sequence.lateness(10) is None  # nothing is written
    sequence.first_token_ns = 0
    sequence.tokens += [4]  # three tokens, two after the first
    assert sequence.lateness(80_000_000) == pytest.approx(2.0)
    # 40 ms for a token: 80 so far, and 5 more of at most 8 tokens
    sequence.params = SamplingParams(max_tokens=8)
    sequence.objective = TimeObjective(e2e_s=0.14)
    assert sequence.lateness(80_000_000) == pytest.approx(2.0)
    sequence.objective = TimeObjective(tpot_s=0.01, e2e_s=0.14)
    assert sequence.lateness(80_000_000) == pytest.approx(4.0)
    sequence.objective = TimeObjective()
    assert sequence.lateness(80_000_000) is None


def test_drafts_hold_no_blocks_that_texts_need(models: dict[str, Path]) -> None:
    """When blocks run out, drafts are shorter; whoever is preempted would be without them too."""
    size = 16 * 2 * 2 * 2 * 16 * 4  # bytes of a block
    texts = []
    for speculation in (OFF, Speculation("auto")):
        engine = load_engine(str(models["target"]), speculation, kv_cache_bytes=9 * size)
        if engine.drafting is not None:
            assert isinstance(engine.drafting, AutoDrafting)
            engine.drafting._controller = Dice([], 5)
        params = SamplingParams(max_tokens=50, ignore_eos=True, logit_bias=FEW)
        ids = [engine.add_request(each, params) for each in PROMPTS]
        found: dict[str, list[int]] = {each: [] for each in ids}
        while engine.has_work:
            for update in engine.step():
                found[update.request_id] += update.tokens
            held = [each for table in engine.scheduler.tables for each in table]
            needed = sum(-(-s.num_computed // 16) for s in engine.scheduler._running)
            assert len(held) == needed
        texts.append(list(found.values()))
        assert engine.scheduler.num_preemptions > 0
    assert texts[0] == texts[1]


def test_rules_that_change_the_text_are_refused() -> None:
    with pytest.raises(OptionError, match=r"auto has the coupled rule alone, got rejection"):
        Speculation("auto", rule="rejection")


def test_the_draft_that_ships_is_found() -> None:
    engine = load_engine("smollm2-135m", Speculation("auto"), quantization="int8")
    assert engine.speculation.draft == "smollm2-135m-eagle"
    assert engine.drafting is not None
    assert list(engine.drafting.proposers) == ["suffix", "eagle"]
