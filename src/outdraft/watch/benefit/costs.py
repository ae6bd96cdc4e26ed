"""The costs that `tune` measured, and the acceptance and the load of now. Pure.

At each load, tune's speedup and acceptance say what a round costs in plain steps, and so do other
draft lengths of the same proposer. Between loads and lengths that is interpolated. Live counters
say how many tokens a round gives now; the speedup is tokens over cost (`goodput`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np

from outdraft.acceptance import Acceptance
from outdraft.goodput import RoundProfile, round_cost_from_speedup, speedup
from outdraft.observe.reading import Growth
from outdraft.step_costs import DraftingCosts, StepCosts, interpolate, verification_costs
from outdraft.tune.arm import proposer_name
from outdraft.tune.results import ArmResult, Results
from outdraft.watch.benefit.jackknife import (
    FEWEST_UNITS,
    MOST_UNITS,
    Floats,
    bounds,
    equal_parts,
    variance_left_out,
)
from outdraft.watch.findings import Benefit, Source
from outdraft.workload.running import running_band

_TUNED = (
    "rounds are taken to cost what they did when `outdraft tune` measured them, on this machine "
    "and with contexts as long as then"
)
_MEASURED_AT_START = (
    "steps are taken to cost what the server measured when it started, and drafting nothing"
)
_WITHOUT_INTERVAL = 0.1  # standard error of a speedup that tune measured without an interval
_NORMAL, _MANY = 1.959964, 1000  # tune's interval, taken as that of a normal distribution
_BEYOND = 2.0  # times the highest load that was measured: no further, and as far below the lowest


@dataclass(frozen=True, slots=True)
class LoadCosts:
    """What rounds cost with so many texts at a time."""

    running: float
    rounds: Mapping[float, float]  # mean draft length → plain steps of a round
    error: float  # standard error of the logarithm of the speedup
    share_drafted: float = 1.0  # of the steps, when the speedup was measured
    table: StepCosts | None = None  # of steps by tokens, where it is known
    plain_s: float | None = None  # seconds of a plain step

    def at(self, k: float) -> float:
        verification = None
        if self.table is not None and self.plain_s:
            verification = verification_costs(self.table, self.running, self.plain_s)
        return DraftingCosts(self.rounds, verification).at(k)


@dataclass(frozen=True, slots=True)
class Costs:
    loads: tuple[LoadCosts, ...]
    assumes: str = _TUNED

    @classmethod
    def from_results(cls, results: Results, proposer: str = "") -> "Costs | None":
        """Of one proposer, by default that of the best arm. None where tune measured nothing of it
        from which costs follow."""
        if not proposer:
            best = None if results.main is None else results.main.best_arm
            proposer = "" if best is None else proposer_name(best.speculation)
        shares = {each.name: each.share_drafted for each in results.acceptance}
        table = {int(size): seconds for size, seconds in results.step_seconds.items()}
        loads = []
        for load in results.loads:
            off_ms = () if load.off is None else load.off.tpot_ms
            arms = {}  # the error of each → its cost
            for arm in load.arms:
                if proposer_name(arm.speculation) == proposer and "tpot" in arm.ratios:
                    cost = _round_cost(arm, shares.get(proposer) or 1.0)
                    if cost is not None:
                        arms[_error(arm), arm.name] = cost
            if not arms or load.concurrency is None:
                continue
            (error, _), surest = min(arms.items())
            loads.append(
                LoadCosts(
                    float(load.concurrency),
                    {k: cost for k, cost, _ in arms.values()},
                    error,
                    share_drafted=surest[2],
                    table=StepCosts(table) if len(table) > 1 else None,
                    plain_s=float(np.median(off_ms)) / 1e3 if off_ms else None,
                )
            )
        return cls(tuple(sorted(loads, key=lambda each: each.running))) if loads else None

    @classmethod
    def from_steps(cls, step_seconds: Mapping[int, float]) -> "Costs | None":
        """From the table that our server measures at its start. Drafting is left out: it costs
        next to nothing for n-grams and suffixes, and too little is said for other methods."""
        if len(step_seconds) < 2:
            return None
        table = StepCosts(step_seconds)
        loads = []
        for running in (1, 2, 4, 8, 16, 32, 64):
            if running == 1 or 2 * running <= max(step_seconds):
                plain = table.seconds(running)
                loads.append(LoadCosts(float(running), {}, _WITHOUT_INTERVAL, 1.0, table, plain))
        return cls(tuple(loads), _MEASURED_AT_START)

    def nearest(self, running: float) -> LoadCosts:
        return min(self.loads, key=lambda each: abs(math.log(each.running / running)))

    def round_at(self, running: float, k: float) -> tuple[float, float] | None:
        """The cost of a round in plain steps, and the standard error of its logarithm. None far
        beyond the loads that were measured."""
        low, high = self.loads[0].running / _BEYOND, self.loads[-1].running * _BEYOND
        if not low <= running <= high:
            return None
        costs = [each.at(k) for each in self.loads]
        points = [each.running for each in self.loads]
        cost = max(interpolate(zip(points, costs, strict=True), running), 1.0)
        errors = [each.error for each in self.loads]
        error = interpolate(zip(points, errors, strict=True), running)
        return cost, max(error, min(errors))


def costs_benefit(
    costs: Costs, fleet: Mapping[str, Sequence[Growth]], k: int | None = None
) -> Benefit | None:
    """None where acceptance or load are not known, or the load is far from what was measured.
    With `k`: what drafts of at most so many tokens would give."""
    seen = _Seen.of(fleet)
    return None if seen is None else _benefit(costs, seen, k)


def benefit_at_k(costs: Costs, fleet: Mapping[str, Sequence[Growth]]) -> dict[int, Benefit]:
    """What every draft length up to the present one would give, as far as it can be said."""
    seen = _Seen.of(fleet)
    if seen is None:
        return {}
    counts = Acceptance.total(each.acceptance for row in fleet.values() for each in row)
    found = {k: _benefit(costs, seen, k) for k in range(1, _longest_draft(counts) + 1)}
    return {k: each for k, each in found.items() if each is not None}


@dataclass(frozen=True, slots=True)
class _Sums:
    """Of stretches of time with about the same load."""

    busy_s: float = 0.0  # of texts
    seconds: float = 0.0
    tokens: float = 0.0
    texts: float = 0.0
    counts: Acceptance = field(default_factory=Acceptance)

    @classmethod
    def of(cls, growth: Growth) -> "_Sums":
        counters, counts = growth.counters, growth.acceptance or Acceptance()
        busy_s, texts = growth.gauge_seconds["running_requests"], counters.get("num_requests", 0.0)
        return cls(busy_s, growth.seconds, counters["num_tokens"], texts, counts)

    def __add__(self, other: "_Sums") -> "_Sums":
        return _Sums(
            self.busy_s + other.busy_s,
            self.seconds + other.seconds,
            self.tokens + other.tokens,
            self.texts + other.texts,
            Acceptance.total((self.counts, other.counts)),
        )


_Bands = Mapping[str, _Sums]  # by load


@dataclass(frozen=True, slots=True)
class _Seen:
    whole: _Bands
    left_out: tuple[_Bands, ...]  # all but one unit each
    start: float
    end: float

    @classmethod
    def of(cls, fleet: Mapping[str, Sequence[Growth]]) -> "_Seen | None":
        rows = [
            each
            for row in fleet.values()
            for each in row
            if each.acceptance is not None
            and each.gauge("running_requests") is not None
            and each.counters.get("num_tokens", 0.0) > 0
        ]
        if not rows:
            return None
        rows.sort(key=lambda each: each.start)
        parts = equal_parts(
            [each.counters["num_tokens"] for each in rows], min(MOST_UNITS, len(rows))
        )
        units: dict[int, dict[str, _Sums]] = {}
        for each, part in zip(rows, parts, strict=True):
            unit = units.setdefault(part, {})
            band = running_band(max(each.gauge("running_requests") or 0.0, 1.0))
            unit[band] = unit.get(band, _Sums()) + _Sums.of(each)
        # Those before a unit and those after it: every sum is made once.
        nothing: _Bands = {}
        before = list(accumulate(units.values(), _together, initial=nothing))
        after = list(accumulate(reversed(units.values()), _together, initial=nothing))
        left_out = tuple(map(_together, before, after[-2::-1]))
        start, end = rows[0].start, max(each.end for each in rows)
        return cls(before[-1], left_out, start, end)


def _together(one: _Bands, other: _Bands) -> _Bands:
    shared = {band: one[band] + sums for band, sums in other.items() if band in one}
    return {**one, **other, **shared}


def _benefit(costs: Costs, seen: _Seen, k: int | None) -> Benefit | None:
    whole = _speedup(costs, seen.whole, k)
    if whole is None:
        return None
    low = high = None
    if len(seen.left_out) >= FEWEST_UNITS:
        found = (_speedup(costs, each, k) for each in seen.left_out)
        logs = [math.log(each.value) for each in found if each is not None]
        if len(logs) == len(seen.left_out):
            values: Floats = np.array(logs)
            in_time = variance_left_out(values), len(logs) - 1
            low, high = bounds(math.log(whole.value), in_time, (whole.error**2, _MANY))
    return Benefit(
        Source.COSTS, whole.value, low, high, seen.start, seen.end, costs.assumes, whole.running
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Speedup:
    value: float
    error: float  # of its logarithm, from the costs
    running: float


def _speedup(costs: Costs, bands: _Bands, k: int | None) -> _Speedup | None:
    """Band by band of load, then on average over the time of texts."""
    value = error = weight = running_sum = 0.0
    for sums in bands.values():
        running = max(sums.busy_s / sums.seconds, 1.0)
        found = _in_band(costs, sums, running, k)
        if found is None:
            continue
        value += sums.busy_s * found[0]
        error += sums.busy_s * found[0] * found[1]
        weight, running_sum = weight + sums.busy_s, running_sum + sums.busy_s * running
    if not weight:
        return None
    return _Speedup(value / weight, error / value, running_sum / weight)


def _in_band(
    costs: Costs, sums: _Sums, running: float, k: int | None
) -> tuple[float, float] | None:
    """Speedup, and the standard error of its logarithm by the costs."""
    counts, tokens, texts = sums.counts, round(sums.tokens), round(sums.texts)
    steps: float = counts.num_steps(tokens, texts)
    written = tokens - texts
    if steps <= 0 or written <= 0:
        return None
    rounds, mean_k = float(min(counts.num_drafts, steps)), counts.mean_k or 0.0
    if k is not None and rounds:
        longest = _longest_draft(counts)
        profile = RoundProfile.from_counts(counts, longest, tokens, texts) if longest else None
        if profile is None:
            return None
        k = min(k, longest)  # drafts that are shorter already stay as they are
        written, rounds = profile.num_tokens, profile.num_rounds_at(k)
        steps, mean_k = profile.num_undrafted + rounds, _mean_draft_at(counts, k)
    if not rounds or not mean_k:
        return 1.0, 0.0  # nothing is proposed: plain steps
    found = costs.round_at(running, mean_k)
    if found is None:
        return None
    cost, error = found
    share = rounds / steps
    step_cost = 1 + share * (cost - 1)
    drafted = costs.nearest(running).share_drafted
    # What is uncertain is the cost of rounds: with fewer of them among the steps, less is.
    error *= min(share / drafted * (1 + drafted * (cost - 1)) / step_cost, 2.0)
    return speedup(written / steps, step_cost), error


def _longest_draft(counts: Acceptance) -> int:
    """Of the drafts that were counted: a server's counters keep the positions of longer ones that
    it made before. 0 where nothing was drafted, or positions are not reported."""
    drafted, accepted = counts.drafted_per_position, counts.accepted_per_position
    longest = max((at for at, count in enumerate(drafted or accepted, 1) if count), default=0)
    if drafted or counts.mean_k is None:
        return longest
    # A last position that was never accepted may have been drafted all the same.
    return max(longest, min(math.ceil(counts.mean_k), len(accepted)))


def _mean_draft_at(counts: Acceptance, k: int) -> float:
    """Tokens of a draft that has at most k. Shortening cuts the long ones and leaves the others;
    where positions are not reported, as much as it can be at most."""
    if counts.drafted_per_position:
        return sum(counts.drafted_per_position[:k]) / counts.num_drafts
    return min(float(k), counts.mean_k or 0.0)


def _round_cost(arm: ArmResult, share_drafted: float) -> tuple[float, float, float] | None:
    """(mean draft length, plain steps of a round, share of steps with a draft)."""
    ratio = arm.pace_ratio or arm.ratios["tpot"].estimate
    if arm.counts is not None:
        found = round_cost_from_speedup(arm.counts, arm.num_tokens, arm.num_texts, ratio)
        steps = arm.counts.num_steps(arm.num_tokens, arm.num_texts)
        return None if found is None else (found.k, found.steps, arm.counts.num_drafts / steps)
    # Results of before the counts were kept.
    if not arm.acceptance_rate or not arm.acceptance_length or arm.acceptance_length <= 1:
        return None
    step_cost = (1 + share_drafted * (arm.acceptance_length - 1)) / ratio
    cost = 1 + (step_cost - 1) / share_drafted
    mean_k = (arm.acceptance_length - 1) / arm.acceptance_rate
    return (mean_k, cost, share_drafted) if cost > 0 else None


def _error(arm: ArmResult) -> float:
    """Standard error of the logarithm of its speedup."""
    ratio = arm.ratios["tpot"]
    if ratio.low is None or ratio.high is None or ratio.low <= 0:
        return _WITHOUT_INTERVAL
    return (math.log(ratio.high) - math.log(ratio.low)) / (2 * _NORMAL)
