"""Predictions against what an engine of known costs then takes."""

from __future__ import annotations

import math

import pytest

from outdraft.records import Record
from outdraft.speculation import OFF, Speculation
from outdraft.tune.arm import name_of
from outdraft.tune.forecast import forecast
from outdraft.tune.journal import Block

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
    found = forecast(ARMS, off, {name_of(ARMS[-1]): longest}, objective)
    for arm in ARMS:
        pairs = zip(taken(off, objective), taken(blocks_of(arm, costs), objective), strict=True)
        logs = [math.log(a / b) for a, b in pairs]
        true = math.exp(sum(logs) / len(logs))
        assert found[name_of(arm)] == pytest.approx(true, rel=0.04), arm.k


def test_nothing_is_said_of_proposers_without_a_block() -> None:
    other = Speculation("ngram", k=4)
    off, longest = blocks_of(OFF, Costs()), blocks_of(ARMS[-1], Costs())
    found = forecast([*ARMS, other], off, {name_of(ARMS[-1]): longest}, "e2e")
    assert name_of(other) not in found
    assert forecast(ARMS, [], {}, "e2e") == {}
