"""The final in visits, where only one engine can be up at a time. Pure.

    off  A  B  off  B  A  off

Each engine, once it is up, measures all its blocks of every load. Off is visited before, between
and after the others: the arms' first visits are compared with the mean of off's first two, their
second visits with the mean of its last two, so that a machine that slowly changes favours nobody.
Every visit has an error of its own, of a process and of the machine at that time, which no number
of requests makes smaller. How far off's visits differ, on the same requests, says how large it is,
and the interval is wider by it.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, variance
from typing import Any

from scipy import special

from outdraft.decide.evidence import Evidence
from outdraft.records import Record
from outdraft.speculation import OFF, Speculation
from outdraft.stats.ratios import MAX_LOG, Ratio
from outdraft.tune.arm import AGAIN, FINAL, Load, name_of
from outdraft.tune.journal import Block, Journal

MIN_VISIT_BLOCKS, MAX_VISIT_BLOCKS = 3, 10  # of a load, in one visit
_SECOND = 100  # number of the first block of second visits
NUM_OFF_VISITS = 3
# Variance of a speedup, in those of a visit: an arm's two visits count 1/2 each, off's three count
# 1/4, 1/2 and 1/4.
_WEIGHT = 2 * (1 / 2) ** 2 + 2 * (1 / 4) ** 2 + (1 / 2) ** 2


@dataclass(frozen=True, slots=True)
class Job:
    """A block that is measured in a visit."""

    arm: Speculation
    load: Load  # with its part
    block: int


def plan_visits(leaders: Mapping[Load, Speculation], num_blocks: int) -> Iterator[Job]:
    """In the order of the visits; `num_blocks` of each load in one visit of an arm."""
    arms = list(dict.fromkeys(leaders.values()))
    halves = [range(num_blocks), range(_SECOND, _SECOND + num_blocks)]

    def jobs(arm: Speculation, part: str, half: range) -> Iterator[Job]:
        for load, leader in leaders.items():
            if arm in (OFF, leader):
                for block in half:
                    yield Job(arm, load.in_part(part, name_of(leader)), block)

    yield from jobs(OFF, FINAL, halves[0])
    for arm in arms:
        yield from jobs(arm, FINAL, halves[0])
    yield from jobs(OFF, AGAIN, halves[0])
    yield from jobs(OFF, FINAL, halves[1])
    for arm in reversed(arms):
        yield from jobs(arm, FINAL, halves[1])
    yield from jobs(OFF, AGAIN, halves[1])


def visited_off(journal: Journal, part: Load) -> tuple[list[Block], float]:
    """Off's blocks of a final between its visits, and the variance of a visit, which is infinite
    until off was visited three times."""
    first = journal.of(part.name, name_of(OFF))
    where = part.in_part(AGAIN, part.subject).name
    again = {each.block: each for each in journal.of(where, name_of(OFF))}
    between = [mean_block(each, again[each.block]) for each in first if each.block in again]
    return between, visit_variance(first, list(again.values()))


def mean_block(first: Block, again: Block) -> Block:
    """Off's block as it would be between two visits: times are geometric means of both. A request
    that failed in either has failed."""
    others = {each.index: each for each in again.records}
    pairs = [(each, others[each.index]) for each in first.records if each.index in others]
    starts = [min(each.scheduled_ns for each in block.records) for block in (first, again)]
    records = [
        _mean_record(one, other, *starts) if one.ok and other.ok else other if one.ok else one
        for one, other in pairs
    ]
    problems = (*first.problems, *again.problems)
    return replace(first, records=tuple(records), problems=problems)


def _mean_record(one: Record, other: Record, start: int, other_start: int) -> Record:
    due = (one.scheduled_ns - start + other.scheduled_ns - other_start) // 2
    first, last = (
        due + round(math.sqrt((times[0] or 0) * (times[1] or 0)))
        for times in ((one.ttft_ns, other.ttft_ns), (one.e2e_ns, other.e2e_ns))
    )
    return replace(one, scheduled_ns=due, sent_ns=due, first_ns=first, last_ns=last, chunk_ns=())


def visit_variance(first: Sequence[Block], again: Sequence[Block]) -> float:
    """Of the logarithm of a time, from visit to visit; from off's requests in two visits each.
    Infinite where a half was not measured twice."""
    steps = []
    for is_later in (False, True):
        logs = [
            math.log(other.e2e_ns / one.e2e_ns)
            for one, other in _twins(first, again)
            if (one.block >= _SECOND) == is_later and one.e2e_ns and other.e2e_ns
        ]
        if not logs:
            return math.inf
        steps.append(fmean(logs))
    return variance([0.0, steps[0], sum(steps)])


def _twins(first: Sequence[Block], again: Sequence[Block]) -> Iterator[tuple[Record, Record]]:
    others = {(each.block, each.index): each for block in again for each in block.records}
    for block in first:
        for one in block.records:
            other = others.get((one.block, one.index))
            if other is not None and one.ok and other.ok and not one.is_warmup:
                yield one, other


def with_visits(ratio: Ratio | None, of_visits: float) -> Ratio | None:
    """With the error of visits beside that of requests. `of_visits`: its variance."""
    if ratio is None or ratio.low is None or ratio.high is None or not of_visits:
        return ratio
    spread = math.sqrt(_WEIGHT * of_visits)
    reach = spread * float(special.stdtrit(NUM_OFF_VISITS - 1, (1 + ratio.level) / 2))
    log = math.log(ratio.estimate)
    down = math.hypot(log - math.log(ratio.low), reach)
    up = math.hypot(math.log(ratio.high) - log, reach)
    return replace(ratio, low=math.exp(log - down), high=math.exp(min(log + up, MAX_LOG)))


def evidence_of_visits(evidence: Evidence, of_visits: float) -> Evidence:
    changed: dict[str, Any] = {
        name: with_visits(getattr(evidence, name), of_visits)
        for name in ("e2e", "tpot", "ttft", "throughput", "total")
    }
    changed["p99"] = None  # means of two times have another tail
    for name in ("by_category", "by_temperature", "tpot_by_part"):
        parts = getattr(evidence, name)
        changed[name] = {part: with_visits(each, of_visits) for part, each in parts.items()}
    return replace(evidence, **changed)
