"""Where a race stands, on blocks made by hand: speeds over off, block by block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from outdraft.records import Record
from outdraft.speculation import OFF, Speculation
from outdraft.tune.arm import name_of
from outdraft.tune.journal import Block
from outdraft.tune.race import Race, Standing
from outdraft.tune.rules import Objective, Rules

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
    return Race((SEVEN, EIGHT), blocks, failed or {}, rules).standing()


def test_what_was_profiled_before_it_failed_still_predicts() -> None:
    """Nothing goes back to the first blocks for another draft length."""
    speeds = {EIGHT: dict.fromkeys(range(4), 1.5), SEVEN: {2: 1.4, 3: 1.4}}
    standing = standing_of(blocks_of(speeds, 4), {"ngram k=8": "ran out of memory"})
    assert standing.next_arms == ()
    assert standing.alive == (SEVEN,)
    assert standing.predicted["ngram k=7"] == pytest.approx(1 + 0.5 * 7 / 8, rel=0.01)
    assert standing.failed == {"ngram k=8": "ran out of memory"}


def test_two_that_are_as_good_end_the_race_and_both_stay_known() -> None:
    blocks = blocks_of(
        {EIGHT: dict.fromkeys(range(10), 1.5), SEVEN: dict.fromkeys(range(2, 10), 1.5)}, 10
    )
    standing = standing_of(blocks)
    assert standing.next_arms == ()
    [told] = standing.dropped.values()
    assert "unlikely to beat ngram k=" in told
    assert "is 1.00x" in told


def test_one_that_never_ran_does_not_share_the_error() -> None:
    """k=8 fails at block 6: nobody is called a finalist of blocks in which only it raced."""
    blocks = blocks_of({EIGHT: dict.fromkeys(range(6), 1.5)}, 6)
    standing = Race((SIX, SEVEN, EIGHT), blocks, {"ngram k=8": "died"}, RULES).standing()
    assert standing.next_block == 5
    assert standing.finalists == ()
    standing = Race((SIX, SEVEN, EIGHT), blocks, {}, RULES).standing()
    assert len(standing.alive) > 1
    assert standing.finalists == (EIGHT,), "others are only about to race"


def test_without_predictions_the_measured_one_leads() -> None:
    """Off has no times between tokens, and nothing is known of drafts."""
    speeds = {EIGHT: dict.fromkeys(range(9), 0.8), SEVEN: dict.fromkeys(range(2, 9), 1.6)}
    blocks = blocks_of(speeds, 9)
    for name, each in blocks.items():
        blocks[name] = [replace(one, step_seconds={}) for one in each]
    rules = Rules(Objective("e2e"), num_profile=2)
    standing = Race((SEVEN, EIGHT), blocks, {}, rules).standing()
    assert standing.is_profiled
    assert standing.best == SEVEN


def test_a_proposer_far_behind_after_its_first_block_gets_no_second() -> None:
    slow, near = Speculation("suffix", k=8), Speculation("eagle", k=8, draft="head")
    arms = (EIGHT, slow, near)
    first = blocks_of({EIGHT: {0: 1.5}, slow: {0: 0.9}, near: {0: 1.2}}, 1)
    standing = Race(arms, first, {}, RULES).standing()
    assert standing.next_block == 1
    assert set(standing.next_arms) == {OFF, EIGHT, near}
    both = blocks_of({EIGHT: {0: 1.5, 1: 1.5}, slow: {0: 0.9}, near: {0: 1.2, 1: 1.2}}, 2)
    profiled = Race(arms, both, {}, RULES).standing()
    assert profiled.is_profiled
    assert profiled.predicted["suffix k=8"] == pytest.approx(0.9, rel=0.02), "it is not forgotten"
