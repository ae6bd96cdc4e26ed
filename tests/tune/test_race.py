"""Where a race stands, on blocks made by hand: speeds over off, block by block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from outdraft.records import Record
from outdraft.speculation import OFF, Speculation
from outdraft.stats import MIN_BLOCKS
from outdraft.tune.arm import name_of
from outdraft.tune.journal import Block
from outdraft.tune.judging import judge_now
from outdraft.tune.objective import Objective
from outdraft.tune.race import stand
from outdraft.tune.standing import Known, Rules, Standing

SIX, SEVEN, EIGHT = (Speculation("ngram", k=k) for k in (6, 7, 8))
RULES = Rules(Objective("e2e"))
STEPS = {1: 0.01, 8: 0.01}


def block(arm: Speculation, number: int, speed: float = 1.0, failing: int = 0) -> Block:
    """Eight requests of one second each, so many times as fast; the first ones fail."""
    taken = [round((1 + at / 100 + number / 1000) * 1e9 / speed) for at in range(8)]
    records = tuple(
        Record(f"p{at}", "chat", 0.0, name_of(arm), number, at, 0, sent_ns=0,
               first_ns=10**8, last_ns=each, completion_tokens=50,
               error="http 503: later" if at < failing else None)
        for at, each in enumerate(taken)
    )  # fmt: skip
    return Block("concurrency 1", name_of(arm), number, 1.0, records, step_seconds=STEPS)


def blocks_of(
    speeds: Mapping[Speculation, Mapping[int, float]], num: int, failing: int = 0
) -> dict[str, Sequence[Block]]:
    found: dict[str, Sequence[Block]] = {name_of(OFF): [block(OFF, each) for each in range(num)]}
    for arm, own in speeds.items():
        found[name_of(arm)] = [block(arm, at, speed, failing) for at, speed in own.items()]
    return found


def standing_of(
    blocks: Mapping[str, Sequence[Block]],
    failed: Mapping[str, str] | None = None,
    rules: Rules = RULES,
) -> Standing:
    return stand((SEVEN, EIGHT), blocks, failed or {}, rules, Known())


def test_a_verdict_on_who_led_before_is_not_the_leaders() -> None:
    """k=8 is judged after five blocks; then k=7, which has four, is ahead of it."""
    tired = {0: 1.5, 1: 1.5, 2: 1.42, 3: 1.42, 4: 1.42}
    steady = dict.fromkeys(range(2, 5), 1.42)
    judged = standing_of(blocks_of({EIGHT: tired, SEVEN: steady}, 5))
    assert judged.best == EIGHT
    assert judged.verdict is not None
    blocks = blocks_of({EIGHT: tired | {5: 1.2}, SEVEN: steady | {5: 1.5}}, 6)
    overtaken = standing_of(blocks)
    assert overtaken.best == SEVEN
    judge_now(overtaken, blocks, RULES)
    assert overtaken.verdict is None
    assert overtaken.evidence is None


@pytest.mark.parametrize(("failing", "decision"), [(0, "SHIP"), (2, "INCONCLUSIVE")])
def test_an_arm_that_fails_one_request_in_four_is_not_shipped(failing: int, decision: str) -> None:
    fast = dict.fromkeys(range(MIN_BLOCKS), 1.5)
    standing = standing_of(blocks_of({EIGHT: fast}, MIN_BLOCKS, failing), {"ngram k=7": "died"})
    assert standing.verdict is not None
    assert standing.verdict.decision == decision
    told = " | ".join(standing.verdict.reasons)
    assert ("ngram k=8: 10 of 40 requests failed (25.0%)" in told) == bool(failing)


def test_what_was_profiled_before_it_failed_still_predicts() -> None:
    """Nothing goes back to the first blocks for another draft length."""
    speeds = {EIGHT: dict.fromkeys(range(4), 1.5), SEVEN: {2: 1.4, 3: 1.4}}
    standing = standing_of(blocks_of(speeds, 4), {"ngram k=8": "ran out of memory"})
    assert standing.next_block == 4
    assert standing.alive == (SEVEN,)
    assert standing.predicted["ngram k=7"] == pytest.approx(1 + 0.5 * 7 / 8, rel=0.01)
    assert standing.failed == {"ngram k=8": "ran out of memory"}


def test_a_gain_end_to_end_at_a_loss_in_the_objective_is_no_ship() -> None:
    """1.5 times as fast from end to end, but all of it before the first token."""
    blocks = blocks_of({EIGHT: dict.fromkeys(range(MIN_BLOCKS), 1.5)}, MIN_BLOCKS)
    late = {name_of(OFF): 9 * 10**8, name_of(EIGHT): 10**8}
    for name, each in blocks.items():
        blocks[name] = [_first_at(one, late[name]) for one in each]
    failed = {"ngram k=7": "died"}
    assert _decision(standing_of(blocks, failed)) == "SHIP"
    standing = standing_of(blocks, failed, Rules(Objective("tpot")))
    assert _decision(standing) == "INCONCLUSIVE"
    assert standing.verdict is not None
    assert standing.verdict.reasons[-1].startswith("tpot: speedup 0.")


def test_two_that_are_as_good_end_the_race_and_both_stay_known() -> None:
    blocks = blocks_of(
        {EIGHT: dict.fromkeys(range(10), 1.5), SEVEN: dict.fromkeys(range(2, 10), 1.5)}, 10
    )
    standing = standing_of(blocks)
    assert standing.is_clear
    [told] = standing.dropped.values()
    assert "hardly better than ngram k=" in told
    assert "is 1.00x" in told


def test_one_that_never_ran_does_not_share_the_error() -> None:
    """k=8 fails at block 6: nobody is called a finalist of blocks in which only it raced."""
    blocks = blocks_of({EIGHT: dict.fromkeys(range(6), 1.5)}, 6)
    standing = stand((SIX, SEVEN, EIGHT), blocks, {"ngram k=8": "died"}, RULES, Known())
    assert standing.next_block == 5
    assert standing.finalists == ()
    standing = stand((SIX, SEVEN, EIGHT), blocks, {}, RULES, Known())
    assert len(standing.alive) > 1
    assert standing.finalists == (EIGHT,), "others are only about to race"


def test_without_predictions_the_measured_one_leads() -> None:
    """Off has no times between tokens, and nothing is known of drafts."""
    speeds = {EIGHT: dict.fromkeys(range(9), 0.8), SEVEN: dict.fromkeys(range(2, 9), 1.6)}
    blocks = blocks_of(speeds, 9)
    for name, each in blocks.items():
        blocks[name] = [replace(one, step_seconds={}) for one in each]
    rules = Rules(Objective("e2e"), num_profile=2)
    standing = stand((SEVEN, EIGHT), blocks, {}, rules, Known())
    assert standing.is_profiled
    assert standing.best == SEVEN


def _decision(standing: Standing) -> str | None:
    return None if standing.verdict is None else standing.verdict.decision


def _first_at(block: Block, first_ns: int) -> Block:
    records = tuple(replace(each, first_ns=first_ns) for each in block.records)
    return replace(block, records=records)
