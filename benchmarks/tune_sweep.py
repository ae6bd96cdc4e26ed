"""Every arm measured alike: block by block, in a journal, for the benchmark of tune."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import exp, log

from outdraft.records import Record
from outdraft.speculation import Speculation
from outdraft.stats.ratios import Ratio, Throughput, throughput_ratio
from outdraft.tune.arm import Load, name_of
from outdraft.tune.journal import Block, Failure, Journal, Start
from outdraft.tune.lab import Lab

SWEEP, CONFIRM = "sweep", ("confirm", "confirm 2", "confirm 3")  # parts of the journal


@dataclass(frozen=True)
class Part(Load):
    part: str = SWEEP

    @property
    def name(self) -> str:
        return self.part


def measure_all(
    part: Part, arms: Sequence[Speculation], num_blocks: int, lab: Lab, journal: Journal
) -> None:
    """Every arm once a block, in an order of the block's own; what is there is not done again."""
    measure = without_start(lab)
    total, began, before = num_blocks * len(arms), time.monotonic(), _num_done(journal, part)
    while before < total and lab.prepare(part, arms) is not None:
        pass
    for number in range(num_blocks):
        order = list(arms)
        random.Random(f"{part.name}/{number}").shuffle(order)
        for arm in order:
            name = name_of(arm)
            if (part.name, name, number) in journal.blocks or (part.name, name) in journal.failures:
                continue
            entry = measure(part, arm, number)
            if isinstance(entry, Block) and entry.problems:  # once more: every pair counts here
                entry = measure(part, arm, number)
            journal.add(entry)
        done = _num_done(journal, part)
        pace = (time.monotonic() - began) / max(done - before, 1)
        left = max(total - done, 0) * pace / 60
        say(f"  {part.name}: block {number + 1} of {num_blocks}, about {left:.1f} minutes left")


def without_start(lab: Lab) -> Callable[[Load, Speculation, int], Block | Failure]:
    """`lab.measure`, as if every engine had been up: what starts take is no part of this."""

    def measure(load: Load, arm: Speculation, number: int) -> Block | Failure:
        entry = lab.measure(load, arm, number)
        if isinstance(entry, Failure):
            return replace(entry, duration_s=0.0)
        return replace(entry, duration_s=entry.duration_s - entry.start_s, start_s=0.0)

    return measure


def starts_untimed(lab: Lab) -> Callable[[Load, Sequence[Speculation]], Start | None]:
    """`lab.prepare`, likewise."""

    def prepare(load: Load, arms: Sequence[Speculation]) -> Start | None:
        start = lab.prepare(load, arms)
        return None if start is None else replace(start, duration_s=0.0)

    return prepare


def _num_done(journal: Journal, part: Part) -> int:
    return sum(each.load == part.name for each in journal.blocks.values())


def records_of(journal: Journal, part: str, arm: Speculation) -> list[Record]:
    blocks = [each for each in journal.of(part, name_of(arm)) if not each.problems]
    return [each for block in blocks for each in block.records if each.ok and each.e2e_ns]


def geometric(
    journal: Journal, part: str, baseline: Speculation, candidate: Speculation
) -> Ratio | None:
    """Over the requests that both have; `num_pairs` are these, blocks are the units."""
    others = {(each.block, each.index): each for each in records_of(journal, part, candidate)}
    by_block: dict[int, list[tuple[float, float]]] = {}
    for each in records_of(journal, part, baseline):
        other = others.get((each.block, each.index))
        if other is not None and each.e2e_ns and other.e2e_ns:
            by_block.setdefault(each.block, []).append((log(each.e2e_ns), log(other.e2e_ns)))
    if not by_block:
        return None
    means = [[sum(side) / len(side) for side in zip(*pairs, strict=True)]
             for pairs in by_block.values()]  # fmt: skip
    # Shifted by the first: a rate is e to minus a large number otherwise.
    shift = means[0][0]
    ratio = throughput_ratio([Throughput(exp(shift - a), exp(shift - b)) for a, b in means])
    return replace(ratio, num_pairs=sum(map(len, by_block.values())))


def say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
