from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outdraft.speculation import OFF, Speculation
from outdraft.stats import MIN_BLOCKS
from outdraft.tune.arm import name_of
from outdraft.tune.journal import Block
from outdraft.tune.time_left import TimeLeft

ARMS = tuple(Speculation("ngram", k=k) for k in (2, 4, 6))


def left(seconds: float, *num_blocks: int) -> TimeLeft:
    """Blocks of one second; how many each arm has."""
    return TimeLeft(seconds, 1.0, {name_of(a): n for a, n in zip(ARMS, num_blocks, strict=False)})


def test_an_arm_with_blocks_enough_needs_no_time() -> None:
    assert left(0, MIN_BLOCKS).is_enough_for(ARMS[0])
    assert not left(0, MIN_BLOCKS - 1).is_enough_for(ARMS[0])


def test_it_runs_beside_off() -> None:
    assert left(4, MIN_BLOCKS - 2).is_enough_for(ARMS[0])
    assert not left(3.9, MIN_BLOCKS - 2).is_enough_for(ARMS[0])


@pytest.mark.parametrize(
    ("seconds", "blocks", "racing"),
    [
        (100, (0, 0, 0), 3),
        (19, (0, 0, 0), 2),  # 20 s for three of them
        (14, (0, 0, 0), 1),  # 15 s for two
        (9, (0, 0, 0), 3),  # nobody can be judged: find out what there is to find out
        (4, (MIN_BLOCKS, MIN_BLOCKS - 1, MIN_BLOCKS - 1), 3),
        (3, (MIN_BLOCKS, MIN_BLOCKS - 1, MIN_BLOCKS - 1), 2),
        (0, (MIN_BLOCKS, MIN_BLOCKS, MIN_BLOCKS), 3),
        (6, (MIN_BLOCKS - 3, MIN_BLOCKS, MIN_BLOCKS), 1),  # the leader comes first
    ],
)
def test_only_those_race_that_can_be_judged(
    seconds: float, blocks: tuple[int, int, int], racing: int
) -> None:
    assert left(seconds, *blocks).enough_for(ARMS) == ARMS[:racing]


def test_a_newcomer_that_comes_too_late_gives_way() -> None:
    kept = left(8, MIN_BLOCKS, 0, MIN_BLOCKS - 1).enough_for(ARMS)
    assert kept == (ARMS[0], ARMS[2])


@given(
    st.floats(0, 60),
    st.lists(st.integers(0, MIN_BLOCKS + 2), min_size=3, max_size=3),
)
def test_whoever_races_can_be_judged_or_nobody_can(seconds: float, blocks: list[int]) -> None:
    time = left(seconds, *blocks)
    kept = time.enough_for(ARMS)
    assert kept[0] == ARMS[0]
    if time.is_enough_for(ARMS[0]):
        needed = max(MIN_BLOCKS - blocks[ARMS.index(arm)] for arm in kept)
        assert max(needed, 0) * (1 + len(kept)) <= seconds
    else:
        assert kept == ARMS


def test_within_a_block_the_answer_is_that_of_its_beginning() -> None:
    def block(number: int, arm: Speculation, start_s: float = 0.0) -> Block:
        return Block(
            "load", name_of(arm), number, duration_s=2 + start_s, start_s=start_s, records=()
        )

    done = {name_of(arm): [block(0, arm, 9.0), block(1, arm)] for arm in (OFF, *ARMS)}
    before = TimeLeft.before(2, done, 40.0)
    assert (before.seconds, before.block_s) == (40, 2)
    later = {**done, name_of(OFF): [*done[name_of(OFF)], block(2, OFF)]}
    assert TimeLeft.before(2, later, 38.0) == before
