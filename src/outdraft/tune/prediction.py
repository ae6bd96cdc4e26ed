"""What every arm would give, predicted from the profile of a load. Pure.

How many steps a shorter draft would take follows from the rounds of a proposer's longest one
(`goodput.RoundProfile`). What a step takes is the time between two chunks of an answer. Speculation
changes steps alone: the time to the first token, and the time that a request waits while prompts
of others are read, stay the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import geometric_mean

from outdraft.acceptance import Acceptance
from outdraft.goodput import RoundProfile
from outdraft.measure.evidence import ratio_of
from outdraft.measure.plateau import counted_ns
from outdraft.speculation import Speculation
from outdraft.stats.percentiles import percentile
from outdraft.step_costs import DraftingCosts, StepCosts, interpolate, verification_costs
from outdraft.tune.arm import by_proposer, name_of
from outdraft.tune.journal import Block, count_drafts, done_records, has_rounds

_STALLED = 3.0  # times the median gap: more than a step
_FEW = 0.2  # of all gaps: if more are that long, several steps come as one chunk
_SIMILAR = 0.25  # chunks may be so many more or fewer than steps


def predict(
    arms: Sequence[Speculation],
    off: Sequence[Block],
    measured: Mapping[str, Sequence[Block]],  # name of an arm → its blocks
    objective: str,
) -> dict[str, float]:
    """Name of an arm → speedup in the objective; proposers without a measured arm are left out.

    Per proposer, the longest measured draft gives the profile of rounds, and every measured one a
    point of the cost curve. Where the engine does not count rounds and positions, speedups are
    interpolated between the measured ones.
    """
    plain = _ArmProfile(0, off)
    profiles = {
        name_of(arm): _ArmProfile(arm.k, measured[name_of(arm)])
        for arm in arms
        if measured.get(name_of(arm))
    }
    every = [plain, *profiles.values()]
    paces = [each.pace for each in every if each.pace is not None]
    # What a request waits for others is the same for every arm.
    stall = max(percentile([each.stall for each in paces], 0.5), 0.0) if paces else 0.0
    costs = reported_step_costs([block for each in every for block in each.blocks])
    speedups: dict[str, float] = {}
    for members in by_proposer(arms).values():
        sampled = {arm.k: profiles[name_of(arm)] for arm in members if name_of(arm) in profiles}
        if not sampled:
            continue
        longest = sampled[max(sampled)]
        curve = _cost_curve(plain, sampled.values(), costs)
        if longest.rounds is None or longest.pace is None or plain.pace is None or curve is None:
            speedups |= _interpolated(members, plain, sampled, objective)
            continue
        first = (0.0, 0.0) if objective == "tpot" else (plain.pace.first, longest.pace.first)
        for arm in members:
            cost = curve.at(longest.rounds.drafted_per_step(arm.k))  # in plain steps
            # Over texts: requests are measured one by one, not their sum.
            speedups[name_of(arm)] = geometric_mean(
                (first[0] + stall + text.num_tokens * plain.pace.step)
                / (first[1] + stall + text.num_steps_at(arm.k) * cost * plain.pace.step)
                for text in longest.texts or [longest.rounds]
            )
    return speedups


class _ArmProfile:
    """What the first blocks of one arm say."""

    def __init__(self, k: int, blocks: Sequence[Block]) -> None:
        self.k, self.blocks = k, blocks
        self.records = [each for block in blocks for each in block.records if not each.is_warmup]
        # Whether the answers report rounds and positions, or only the server's counters do.
        self.is_reported = has_rounds(Acceptance.total(each.acceptance for each in self.records))

    @cached_property
    def rounds(self) -> RoundProfile | None:
        acceptance, num_tokens, num_texts = count_drafts(self.blocks)
        return RoundProfile.from_counts(acceptance, self.k, num_tokens, num_texts)

    @cached_property
    def texts(self) -> list[RoundProfile]:
        """Rounds of every text of two tokens or more, where the answers report them."""
        profiles = []
        for each in self.records if self.is_reported else ():
            tokens = each.completion_tokens or 0
            if each.ok and each.acceptance is not None and tokens > 1:
                rounds = RoundProfile.from_counts(each.acceptance, self.k, tokens, 1)
                # A text without a draft is plain steps only.
                profiles.append(rounds or RoundProfile(self.k, (0,) * (self.k + 1), tokens - 1))
        return profiles

    @cached_property
    def pace(self) -> Pace | None:
        done = [each for each in self.records if each.ok and each.completion_tokens]
        has_failures = not all(each.ok for each in self.records)
        if not self.is_reported and has_failures and any(each.counted for each in self.blocks):
            return None  # the server counted the drafts of failed requests too
        num_tokens = sum(each.completion_tokens or 0 for each in done)
        counts, num_counted, num_texts = count_drafts(self.blocks)
        if self.is_reported:
            counts = Acceptance.total(each.acceptance for each in done)
        elif num_counted:  # over other requests too: steps in proportion
            num_steps = counts.num_steps(num_counted, num_texts) * num_tokens / num_counted
            return pace_of(self.blocks, round(num_steps))
        return pace_of(self.blocks, counts.num_steps(num_tokens, len(done)))


def reported_step_costs(blocks: Sequence[Block]) -> StepCosts | None:
    """As the engines report them, each once; None where fewer than two sizes were measured."""
    tables = {tuple(sorted(each.step_seconds.items())) for each in blocks if each.step_seconds}
    costs = StepCosts.median_of(map(dict, tables))
    return None if costs is None or len(costs.measured) < 2 else costs


def _cost_curve(
    plain: _ArmProfile, sampled: Iterable[_ArmProfile], costs: StepCosts | None
) -> DraftingCosts | None:
    """Draft tokens of a step → its cost in plain steps, through the measured arms."""
    if plain.pace is None:
        return None
    points = {
        each.rounds.drafted_per_step(each.k): each.pace.step / plain.pace.step
        for each in sampled
        if each.rounds is not None and each.pace is not None
    }
    running, plain_s = mean_running(plain.blocks), plain.pace.step
    verification = None if costs is None else verification_costs(costs, running, plain_s)
    return DraftingCosts(points, verification) if points else None


def _interpolated(
    members: Sequence[Speculation],
    plain: _ArmProfile,
    sampled: Mapping[int, _ArmProfile],
    objective: str,
) -> dict[str, float]:
    """Between the measured speedups, and 1 without a draft."""
    name = "e2e" if objective == "goodput" else objective
    points = {0.0: 1.0}
    for k, each in sampled.items():
        ratio = ratio_of(name, plain.records, each.records, level=0.95)
        if ratio is not None:
            points[k] = ratio.estimate
    if len(points) == 1:
        return {}
    return {name_of(arm): max(interpolate(points.items(), arm.k), 0.0) for arm in members}


@dataclass(frozen=True, slots=True)
class Pace:
    """Where the time of requests went: means over requests, in seconds."""

    first: float  # up to the first token
    step: float  # of one step
    stall: float  # after the first token, outside of its steps


def pace_of(blocks: Sequence[Block], num_steps: int) -> Pace | None:
    """From the times of chunks; all requests together took `num_steps`. None without an answer.
    Where a server does not send a chunk with every step, all the time after the first token counts
    as steps."""
    done = [each for each in done_records(blocks) if each.first_ns is not None]
    after_first = sum(((each.last_ns or 0) - (each.first_ns or 0)) / 1e9 for each in done)
    if not after_first or num_steps <= 0:
        return None
    gaps = [(b - a) / 1e9 for each in done for a, b in pairwise(each.chunk_ns)]
    step = after_first / num_steps
    if gaps and abs(len(gaps) / num_steps - 1) <= _SIMILAR:
        median = percentile(gaps, 0.5)
        steps = [gap for gap in gaps if gap <= _STALLED * median]
        if median > 0 and len(steps) >= (1 - _FEW) * len(gaps):
            step = min(step, sum(steps) / len(steps))
    return Pace(
        first=sum((each.ttft_ns or 0) for each in done) / len(done) / 1e9,
        step=step,
        stall=(after_first - num_steps * step) / len(done),
    )


def mean_running(blocks: Sequence[Block]) -> float:
    """Requests under way at a time, by Little's law: their times over the time of the blocks."""
    busy = sum(each.e2e_ns or 0 for each in done_records(blocks))
    spent = sum(counted_ns(block.records) for block in blocks)
    return max(busy / spent, 1.0) if spent else 1.0
