"""Where the time of requests went: up to the first token, in steps, in others' prompts. Pure.

A token comes with every step, so the time between two chunks of an answer is a step's; and while
the prompt of another request is read, this one waits. Steps are what speculation changes. What is
waited for others stays, and so does the way to the first token, more or less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from outdraft.records import Record
from outdraft.stats import percentile
from outdraft.tune.journal import Block

_STALLED = 3.0  # times the middle gap: not a step alone
_FEW = 0.2  # of all gaps: if more are that long, several steps come as one chunk
_TOLD = 0.25  # chunks may be so many more or fewer than steps


@dataclass(frozen=True, slots=True)
class Pace:
    """Means over requests, in seconds."""

    first: float  # up to the first token
    step: float  # of one step
    stall: float  # behind the first token, in none of its steps


def pace_of(blocks: Sequence[Block], num_steps: int) -> Pace | None:
    """`num_steps` all their requests took together. None where nothing was answered.

    A server that sends a chunk now and then tells nothing of its steps: there all the time behind
    the first token is theirs.
    """
    done = [
        each
        for block in blocks
        for each in block.records
        if each.ok and not each.is_warmup and each.first_ns is not None
    ]
    behind = [_behind(each) for each in done]
    if not sum(behind) or num_steps <= 0:
        return None
    gaps = [(b - a) / 1e9 for each in done for a, b in pairwise(each.chunk_ns)]
    step = sum(behind) / num_steps
    if gaps and abs(len(gaps) / num_steps - 1) <= _TOLD:
        middle = percentile(gaps, 0.5)
        steps = [gap for gap in gaps if gap <= _STALLED * middle]
        if middle > 0 and len(steps) >= (1 - _FEW) * len(gaps):
            step = min(step, sum(steps) / len(steps))
    return Pace(
        first=sum((each.ttft_ns or 0) for each in done) / len(done) / 1e9,
        step=step,
        stall=(sum(behind) - num_steps * step) / len(done),
    )


def _behind(record: Record) -> float:
    return ((record.last_ns or 0) - (record.first_ns or 0)) / 1e9


def common_table(blocks: Sequence[Block]) -> dict[int, float]:
    """Tokens of a step → its seconds: the middle of what the engines told, each for itself."""
    tables = {tuple(sorted(each.step_seconds.items())) for each in blocks if each.step_seconds}
    sizes = {size for table in tables for size, _ in table}
    return {
        size: percentile([dict(table)[size] for table in tables if size in dict(table)], 0.5)
        for size in sorted(sizes)
    }


def seconds_at(step_seconds: Mapping[int, float], num_tokens: float) -> float:
    """Straight lines between the sizes that were measured; beyond them the last line goes on."""
    sizes = sorted(step_seconds)
    high = next((at for at, size in enumerate(sizes) if size >= num_tokens), len(sizes) - 1)
    high = max(high, 1)
    low = high - 1
    slope = (step_seconds[sizes[high]] - step_seconds[sizes[low]]) / (sizes[high] - sizes[low])
    value = step_seconds[sizes[low]] + slope * (num_tokens - sizes[low])
    return max(value, min(step_seconds.values()))


def mean_running(blocks: Sequence[Block]) -> float:
    """Requests under way at a time, by Little's law: their times over the time they took."""
    busy = spent = 0.0
    for block in blocks:
        done = [each for each in block.records if each.ok and not each.is_warmup]
        if done:
            busy += sum(each.e2e_ns or 0 for each in done)
            start = min(each.scheduled_ns for each in done)
            spent += max(each.last_ns or 0 for each in done) - start
    return max(busy / spent, 1.0) if spent else 1.0
