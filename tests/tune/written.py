"""Blocks as an engine with known costs would answer them: steps, drafts, waiting for others."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import accumulate

from outdraft.acceptance import Acceptance
from outdraft.records import Record
from outdraft.speculation import Speculation
from outdraft.tune.arm import name_of
from outdraft.tune.journal import Block

TABLE = {1: 0.030, 4: 0.030, 8: 0.035, 16: 0.045, 32: 0.070, 64: 0.120}


@dataclass(frozen=True)
class Costs:
    """Seconds."""

    first: float = 0.4
    plain: float = 0.04  # a step on texts longer than the table's
    draft: float = 0.003  # one draft token
    stall: float = 0.0  # a request waits for others, at once
    chance: float = 0.7  # of every guess


def cost_of(arm: Speculation, costs: Costs) -> float:
    """One step, one request at a time."""
    if arm.is_off:
        return costs.plain
    line = {1: 0.030, **{n: _table(n) for n in range(2, 20)}}
    return costs.plain + line[1 + arm.k] - line[1] + costs.draft * arm.k


def _table(n: int) -> float:
    low = max(size for size in TABLE if size <= n)
    high = min(size for size in TABLE if size >= n)
    share = (n - low) / (high - low) if high > low else 0.0
    return TABLE[low] + share * (TABLE[high] - TABLE[low])


def written_block(
    arm: Speculation, number: int, costs: Costs, *, tokens: int = 200, size: int = 4
) -> Block:
    records = tuple(_written(arm, number, at, costs, tokens) for at in range(size))
    return Block("concurrency 1", name_of(arm), number, 1.0, records, step_seconds=TABLE)


def _written(arm: Speculation, number: int, index: int, costs: Costs, tokens: int) -> Record:
    """Which guesses of a text are right does not depend on the arm."""
    draw = random.Random(f"{number}/{index}")
    right = [draw.random() < costs.chance for _ in range(tokens)]
    k = 0 if arm.is_off else arm.k
    place, rounds, accepted = 1, 0, [0] * k
    while place < tokens:
        rounds += 1
        run = 0
        while run < k and place + run < tokens - 1 and right[place + run]:
            accepted[run] += 1
            run += 1
        place += run + 1
    gaps = [cost_of(arm, costs)] * rounds
    gaps[0] += costs.stall
    chunks = [costs.first, *(costs.first + each for each in accumulate(gaps))]
    nanoseconds = tuple(round(each * 1e9) for each in chunks)
    counts = Acceptance(rounds, rounds * k, sum(accepted), accepted_per_position=accepted)
    return Record(
        f"p{index}", "chat", 0.0, name_of(arm), number, index, 0, sent_ns=0,
        first_ns=nanoseconds[0], last_ns=nanoseconds[-1], chunk_ns=nanoseconds,
        prompt_tokens=10, completion_tokens=tokens,
        acceptance=None if arm.is_off else counts,
    )  # fmt: skip
