"""The verdict on an arm, from blocks of a final made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from outdraft.decide.texts import Agreement
from outdraft.speculation import OFF
from outdraft.stats.ratios import MIN_BLOCKS
from outdraft.tune.arm import name_of
from outdraft.tune.journal import Block
from outdraft.tune.judging import Judgement, judge
from outdraft.tune.rules import Objective, Rules

from .test_race import EIGHT, RULES, blocks_of


def judged(blocks: Mapping[str, Sequence[Block]], rules: Rules = RULES) -> Judgement:
    return judge(EIGHT, blocks, {}, rules)


def final(speed: float, num: int = MIN_BLOCKS, failing: int = 0) -> dict[str, Sequence[Block]]:
    return blocks_of({EIGHT: dict.fromkeys(range(num), speed)}, num, failing)


@pytest.mark.parametrize(("failing", "decision"), [(0, "SHIP"), (2, "INCONCLUSIVE")])
def test_an_arm_that_fails_one_request_in_four_is_not_shipped(failing: int, decision: str) -> None:
    verdict = judged(final(1.5, failing=failing)).verdict
    assert verdict.decision == decision
    reasons = " | ".join(verdict.reasons)
    assert ("ngram k=8: 10 of 40 requests failed (25.0%)" in reasons) == bool(failing)


def test_requests_that_fail_without_a_block_of_off_beside_them_count() -> None:
    blocks = final(1.5)
    lost = blocks_of({EIGHT: dict.fromkeys(range(MIN_BLOCKS, MIN_BLOCKS + 5), 1.5)}, 0, failing=4)
    blocks[name_of(EIGHT)] = [*blocks[name_of(EIGHT)], *lost[name_of(EIGHT)]]
    judgement = judged(blocks)
    assert judgement.evidence.error_rate == pytest.approx(20 / (8 * (2 * MIN_BLOCKS + 5)))
    assert judgement.verdict.decision == "INCONCLUSIVE"


def test_a_gain_end_to_end_at_a_loss_in_the_objective_is_no_ship() -> None:
    """1.5 times as fast from end to end, but all of it before the first token."""
    blocks = final(1.5)
    late = {name_of(OFF): 9 * 10**8, name_of(EIGHT): 10**8}
    for name, each in blocks.items():
        blocks[name] = [_first_at(one, late[name]) for one in each]
    assert judged(blocks).verdict.decision == "SHIP"
    verdict = judged(blocks, Rules(Objective("tpot"))).verdict
    assert verdict.decision == "INCONCLUSIVE"
    assert verdict.reasons[-1].startswith("tpot: speedup 0.")


def test_too_few_blocks_prove_nothing() -> None:
    judgement = judged(final(1.5, MIN_BLOCKS - 1))
    assert judgement.verdict.decision == "INCONCLUSIVE"
    assert not judgement.is_clear(0.01)


def test_the_level_is_what_it_says() -> None:
    """The arm was chosen by other blocks: nothing is shared with those that raced."""
    assert judged(final(1.5)).evidence.e2e is not None
    assert judged(final(1.5)).evidence.e2e.level == 0.95  # type: ignore[union-attr]


def test_texts_of_the_race_count_too() -> None:
    """Junk in two fifths of the answers: neither the race nor the final alone is clear."""
    blocks, raced = (_with_texts(final(1.5), junk=0.4) for _ in range(2))
    floor = Agreement(16, 16)
    assert judge(EIGHT, blocks, {}, RULES, Agreement(5, 5)).verdict.decision != "DON'T SHIP"
    judgement = judge(EIGHT, blocks, raced, RULES, floor)
    assert judgement.evidence.texts is not None
    assert judgement.evidence.texts.num_compared == 80
    assert judgement.verdict.decision == "DON'T SHIP"


def _with_texts(blocks: Mapping[str, Sequence[Block]], junk: float) -> dict[str, Sequence[Block]]:
    def text_of(name: str, at: int) -> str:
        is_junk = name != name_of(OFF) and at % 10 < 10 * junk
        return f"{'xyz' if is_junk else 'the answer to '}{at}"

    return {
        name: [
            replace(each, records=tuple(
                replace(record, text=text_of(name, 8 * each.block + record.index))
                for record in each.records
            ))
            for each in own
        ]
        for name, own in blocks.items()
    }  # fmt: skip


def _first_at(block: Block, first_ns: int) -> Block:
    records = tuple(replace(each, first_ns=first_ns) for each in block.records)
    return replace(block, records=records)
