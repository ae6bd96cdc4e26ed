"""Predictions against what an engine of known costs then takes; where the time of requests goes."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from outdraft.acceptance import Acceptance
from outdraft.records import Record
from outdraft.speculation import OFF, Speculation
from outdraft.tune.arm import name_of
from outdraft.tune.journal import Block
from outdraft.tune.prediction import mean_running, pace_of, predict

from .written import Costs, written_block

ARMS = [Speculation("draft_model", draft="d", k=k) for k in range(2, 9)]


def blocks_of(arm: Speculation, costs: Costs) -> list[Block]:
    return [written_block(arm, number, costs, size=1) for number in range(6)]


def taken(blocks: list[Block], objective: str) -> list[float]:
    def seconds(record: Record) -> float:
        value = record.tpot_ns if objective == "tpot" else record.e2e_ns
        return float(value or 0)

    return [seconds(record) for block in blocks for record in block.records]


@pytest.mark.parametrize("objective", ["e2e", "tpot"])
@pytest.mark.parametrize(
    "costs",
    [Costs(), Costs(stall=2.0), Costs(chance=0.3, draft=0.01), Costs(first=5.0, chance=0.9)],
    ids=["plain", "waiting", "a bad draft", "long prompts"],
)
def test_every_length_from_the_longest(costs: Costs, objective: str) -> None:
    off, longest = blocks_of(OFF, costs), blocks_of(ARMS[-1], costs)
    found = predict(ARMS, off, {name_of(ARMS[-1]): longest}, objective)
    for arm in ARMS:
        pairs = zip(taken(off, objective), taken(blocks_of(arm, costs), objective), strict=True)
        logs = [math.log(a / b) for a, b in pairs]
        true = math.exp(sum(logs) / len(logs))
        assert found[name_of(arm)] == pytest.approx(true, rel=0.04), arm.k


def test_nothing_is_said_of_proposers_without_a_block() -> None:
    other = Speculation("ngram", k=4)
    off, longest = blocks_of(OFF, Costs()), blocks_of(ARMS[-1], Costs())
    found = predict([*ARMS, other], off, {name_of(ARMS[-1]): longest}, "e2e")
    assert name_of(other) not in found
    assert predict(ARMS, [], {}, "e2e") == {}


def test_where_only_the_server_counts_it_is_the_same() -> None:
    """As llama.cpp: answers tell how many tokens were accepted, and nothing of rounds."""
    off, longest = blocks_of(OFF, Costs()), blocks_of(ARMS[-1], Costs())
    told = predict(ARMS, off, {name_of(ARMS[-1]): longest}, "e2e")
    counted = [_counted(each) for each in longest]
    found = predict(ARMS, off, {name_of(ARMS[-1]): counted}, "e2e")
    assert found == pytest.approx(told, rel=0.06)


def test_counters_that_hold_failed_requests_predict_nothing_absurd() -> None:
    off = [written_block(OFF, number, Costs()) for number in range(2)]
    longest = [written_block(ARMS[-1], number, Costs()) for number in range(2)]
    failed = [
        replace(each, records=tuple(
            replace(record, error="http 500") if record.index < 2 else record
            for record in each.records
        ))
        for each in map(_counted, longest)
    ]  # fmt: skip
    true = predict(ARMS, off, {name_of(ARMS[-1]): longest}, "e2e")[name_of(ARMS[-1])]
    found = predict(ARMS, off, {name_of(ARMS[-1]): failed}, "e2e")[name_of(ARMS[-1])]
    assert found == pytest.approx(true, rel=0.1)


def test_answers_in_one_piece_are_predicted_from_whole_requests() -> None:
    def at_once(block: Block) -> Block:
        records = tuple(
            replace(each, first_ns=each.last_ns, chunk_ns=(each.last_ns or 0,))
            for each in block.records
        )
        return replace(block, records=records)

    off, longest = ([at_once(each) for each in blocks_of(arm, Costs())] for arm in (OFF, ARMS[-1]))
    found = predict(ARMS, off, {name_of(ARMS[-1]): longest}, "e2e")
    assert found[name_of(ARMS[-1])] > 1.2
    assert 1 < found[name_of(ARMS[0])] < found[name_of(ARMS[-1])]


def test_answers_of_one_token_have_no_time_between_tokens() -> None:
    def short(block: Block) -> Block:
        first, *rest = block.records
        one = replace(
            first, last_ns=first.first_ns, chunk_ns=first.chunk_ns[:1], completion_tokens=1,
            acceptance=Acceptance(0, 0, 0) if first.acceptance else None,
        )  # fmt: skip
        return replace(block, records=(one, *rest))

    def blocks(arm: Speculation) -> list[Block]:
        return [written_block(arm, number, Costs()) for number in range(3)]

    name = name_of(ARMS[-1])
    true = predict(ARMS, blocks(OFF), {name: blocks(ARMS[-1])}, "tpot")
    found = predict(
        ARMS, list(map(short, blocks(OFF))), {name: list(map(short, blocks(ARMS[-1])))}, "tpot"
    )
    assert found == pytest.approx(true, rel=0.06)


def _counted(block: Block) -> Block:
    counts = Acceptance.total(each.acceptance for each in block.records)
    records = tuple(
        replace(each, acceptance=Acceptance(0, 0, each.acceptance.num_accepted_tokens))
        for each in block.records
        if each.acceptance is not None
    )
    return replace(block, records=records, counted=counts)


# ---------------------------------------------------------------- where the time of requests goes


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


def test_four_at_once_are_four_running() -> None:
    assert mean_running([written_block(OFF, 0, Costs(), size=4)]) == pytest.approx(4)
