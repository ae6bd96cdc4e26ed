from __future__ import annotations

from dataclasses import replace

import pytest

from outdraft.speculation import OFF
from outdraft.tune.pace import common_table, mean_running, pace_of, seconds_at

from .written import TABLE, Costs, written_block


def test_waiting_for_others_is_no_part_of_a_step() -> None:
    blocks = [written_block(OFF, each, Costs(stall=0.9)) for each in range(2)]
    pace = pace_of(blocks, 8 * 199)
    assert pace is not None
    assert (pace.first, pace.step, pace.stall) == pytest.approx((0.4, 0.04, 0.9))


def test_chunks_that_are_no_steps_tell_nothing_of_them() -> None:
    block = written_block(OFF, 0, Costs(stall=0.9))
    rare = replace(
        block, records=tuple(replace(r, chunk_ns=r.chunk_ns[::4]) for r in block.records)
    )
    pace = pace_of([rare], 4 * 199)
    assert pace is not None
    assert pace.stall == pytest.approx(0)
    assert pace.step == pytest.approx(0.04 + 0.9 / 199)


@pytest.mark.parametrize("apart_ns", [0, 2000])
def test_steps_that_come_two_at_a_time_are_no_stalls(apart_ns: int) -> None:
    block = written_block(OFF, 0, Costs())
    records = []
    for each in block.records:
        times = list(each.chunk_ns)
        for at in range(1, len(times) - 1, 2):
            times[at] = times[at + 1] - apart_ns
        records.append(replace(each, chunk_ns=tuple(times)))
    pace = pace_of([replace(block, records=tuple(records))], 4 * 199)
    assert pace is not None
    assert (pace.step, pace.stall) == pytest.approx((0.04, 0.0), abs=1e-6)


def test_without_answers_there_is_no_pace() -> None:
    block = written_block(OFF, 0, Costs())
    failed = replace(block, records=tuple(replace(r, error="http 500") for r in block.records))
    assert pace_of([failed], 0) is None
    assert pace_of([], 0) is None
    assert pace_of([block], -5) is None, "more accepted than written: counted elsewhere"


def test_one_slow_start_does_not_spoil_the_table() -> None:
    slow = {size: 2 * each for size, each in TABLE.items()}
    blocks = [
        replace(written_block(OFF, at, Costs()), step_seconds=table)
        for at, table in enumerate((slow, TABLE, TABLE | {1: 0.031}, {}))
    ]
    assert common_table(blocks) == TABLE | {1: 0.031}
    assert common_table([]) == {}


def test_a_table_is_read_between_and_beyond_its_sizes() -> None:
    assert seconds_at(TABLE, 12) == pytest.approx(0.040)
    assert seconds_at(TABLE, 96) == pytest.approx(0.170)


def test_four_at_once_are_four_running() -> None:
    assert mean_running([written_block(OFF, 0, Costs(), size=4)]) == pytest.approx(4)
