"""The benefit that follows from costs of steps, and the acceptance and the load of now. Pure.

Live counters say how many tokens a round gives now; the speedup is tokens over cost (`goodput`).

Where the costs are those that our server timed at its start, they are of steps alone: without
drafting, without sampling, with short texts. What steps take now beyond that is seen, and not whose
it is. It may be drafting's, or slow all steps alike, or by the same seconds (`_explained`): plain
steps would take least in the first case and most in one of the others. The interval holds all
three.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

import numpy as np

from outdraft.acceptance import Acceptance
from outdraft.goodput import RoundProfile, speedup
from outdraft.observe.reading import TEMPERATURE, Growth
from outdraft.watch.benefit.canary import SPECULATING
from outdraft.watch.benefit.costs import Costs
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

_MANY = 1000  # degrees of freedom of what tune measured
# Of the time of texts must be at loads that were measured. What is left out is mostly high load,
# where drafts lose: the rest would have to lose as much as a half gains, to make it none.
_LEAST_SHARE = 0.5
_WHOLE = 0.995


def costs_benefit(
    costs: Costs, fleet: Mapping[str, Sequence[Growth]], k: int | None = None
) -> Benefit | None:
    """None where acceptance or load are not known, or the load is far from what was measured;
    without an interval where it is most of the time. With `k`: what drafts of at most so many
    tokens would give."""
    seen = _Seen.of(costs, fleet)
    return None if seen is None else _benefit(costs, seen, k)


def benefit_at_k(costs: Costs, fleet: Mapping[str, Sequence[Growth]]) -> dict[int, Benefit]:
    """What every draft length up to the present one would give, as far as it can be said."""
    seen = _Seen.of(costs, fleet)
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
    timed_s: float = 0.0  # of texts, in steps with drafts and without prompts, where it is said
    timed_tokens: float = 0.0

    @classmethod
    def of(cls, growth: Growth) -> "_Sums":
        counters, counts = growth.counters, growth.acceptance or Acceptance()
        busy_s, texts = growth.gauge_seconds["running_requests"], counters.get("num_requests", 0.0)
        timed = [
            each
            for (side, band), each in growth.slices.items()
            if side == SPECULATING and not band.startswith(TEMPERATURE)
        ]
        return cls(
            busy_s,
            growth.seconds,
            counters["num_tokens"],
            texts,
            counts,
            math.fsum(seconds for _, seconds in timed),
            math.fsum(tokens for tokens, _ in timed),
        )

    def __add__(self, other: "_Sums") -> "_Sums":
        return _Sums(
            self.busy_s + other.busy_s,
            self.seconds + other.seconds,
            self.tokens + other.tokens,
            self.texts + other.texts,
            Acceptance.total((self.counts, other.counts)),
            self.timed_s + other.timed_s,
            self.timed_tokens + other.timed_tokens,
        )


_Bands = Mapping[str, _Sums]  # by load


@dataclass(frozen=True, slots=True)
class _Band:
    """Stretches with about the same load, and what all draft lengths that are asked about share."""

    busy_s: float
    running: float  # texts at a time
    steps: float
    written: float  # tokens after the first ones
    rounds: float
    mean_k: float
    step_cost: tuple[float, float] | None  # of now
    slower: float | None  # steps take so many times as long as costs say; None: it is not known
    counts: Acceptance
    longest: int  # draft
    profile: RoundProfile | None

    @classmethod
    def of(cls, costs: Costs, sums: _Sums) -> "_Band | None":
        """None where nothing was written."""
        counts, tokens, texts = sums.counts, round(sums.tokens), round(sums.texts)
        steps, written = counts.num_steps(tokens, texts), tokens - texts
        if steps <= 0 or written <= 0:
            return None
        running = max(sums.busy_s / sums.seconds, 1.0)
        rounds, mean_k = float(min(counts.num_drafts, steps)), counts.mean_k or 0.0
        now = _step_cost(costs, running, rounds / steps, mean_k)
        slower: float | None = 1.0
        if costs.timed is not None and now is not None:
            slower = _times_as_slow(costs.timed.seconds(running) * now[0] * steps / written, sums)
        longest = _longest_draft(counts)
        profile = RoundProfile.from_counts(counts, longest, tokens, texts) if longest else None
        return cls(
            sums.busy_s, running, steps, written, rounds, mean_k, now, slower, counts, longest,
            profile,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Seen:
    whole: tuple[_Band, ...]
    left_out: tuple[tuple[_Band, ...], ...]  # all but one unit each
    start: float
    end: float

    @classmethod
    def of(cls, costs: Costs, fleet: Mapping[str, Sequence[Growth]]) -> "_Seen | None":
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
            load = running_band(max(each.gauge("running_requests") or 0.0, 1.0))
            unit[load] = unit.get(load, _Sums()) + _Sums.of(each)
        # Those before a unit and those after it: every sum is made once.
        nothing: _Bands = {}
        before = list(accumulate(units.values(), _together, initial=nothing))
        after = list(accumulate(reversed(units.values()), _together, initial=nothing))
        whole, *left_out = (
            tuple(band for sums in each.values() if (band := _Band.of(costs, sums)) is not None)
            for each in (before[-1], *map(_together, before, after[-2::-1]))
        )
        start, end = rows[0].start, max(each.end for each in rows)
        return cls(whole, tuple(left_out), start, end)


def _together(one: _Bands, other: _Bands) -> _Bands:
    shared = {band: one[band] + sums for band, sums in other.items() if band in one}
    return {**one, **other, **shared}


def _benefit(costs: Costs, seen: _Seen, k: int | None) -> Benefit | None:
    whole = _speedup(costs, seen.whole, k)
    if whole is None:
        return None
    low = high = None
    is_enough = whole.is_timed and whole.share >= _LEAST_SHARE
    if len(seen.left_out) >= FEWEST_UNITS and is_enough:
        found = (_speedup(costs, each, k) for each in seen.left_out)
        logs = [math.log(each.value) for each in found if each is not None]
        if len(logs) == len(seen.left_out):
            values: Floats = np.array(logs)
            terms = (variance_left_out(values), len(logs) - 1), (whole.error**2, _MANY)
            low, _ = bounds(math.log(whole.low), *terms)
            _, high = bounds(math.log(whole.high), *terms)
    benefit = Benefit(
        Source.COSTS, whole.value, low, high, seen.start, seen.end, costs.assumes, whole.running
    )  # fmt: skip
    if whole.share >= _WHOLE:
        return benefit
    about = f"; of {whole.share:.0%} of the time of texts: the rest is at loads far from measured"
    return replace(benefit, assumes=costs.assumes + about, share=whole.share)


@dataclass(frozen=True, slots=True)
class _Speedup:
    """`low` and `high` are the same where the model has no doubt of its own."""

    low: float
    high: float
    error: float  # of its logarithm, from the costs
    running: float = 1.0
    is_timed: bool = True  # live steps were compared, where they have to be
    share: float = 1.0  # of the time of texts, at loads of which something is known

    @property
    def value(self) -> float:
        return math.sqrt(self.low * self.high)


def _speedup(costs: Costs, bands: Sequence[_Band], k: int | None) -> _Speedup | None:
    """Band by band of load, then on average over the time of texts."""
    low = high = error = weight = running_sum = 0.0
    is_timed = True
    for band in bands:
        found = _in_band(costs, band, k)
        if found is None:
            continue
        low += band.busy_s * found.low
        high += band.busy_s * found.high
        error += band.busy_s * found.value * found.error
        weight, running_sum = weight + band.busy_s, running_sum + band.busy_s * band.running
        is_timed &= found.is_timed
    if not weight:
        return None
    share = weight / math.fsum(band.busy_s for band in bands)
    whole = _Speedup(low / weight, high / weight, 0.0, running_sum / weight, is_timed, share)
    return replace(whole, error=error / weight / whole.value)


def _in_band(costs: Costs, band: _Band, k: int | None) -> _Speedup | None:
    now, then = band.step_cost, band.step_cost
    steps, written = band.steps, band.written
    if k is not None and band.rounds:
        if band.profile is None:
            return None
        k = min(k, band.longest)  # drafts that are shorter already stay as they are
        written, rounds = band.profile.num_tokens, band.profile.num_rounds_at(k)
        steps, mean_k = band.profile.num_undrafted + rounds, _mean_draft_at(band.counts, k)
        then = _step_cost(costs, band.running, rounds / steps, mean_k)
    if now is None or then is None:
        return None
    per_step, (step_cost, error) = written / steps, then
    if band.slower is None:
        known = speedup(per_step, step_cost)
        return _Speedup(known, known, error, is_timed=False)
    found = _explained(per_step, step_cost, band.slower, now[0])
    return _Speedup(min(found), max(found), error)


def _step_cost(
    costs: Costs, running: float, share: float, mean_k: float
) -> tuple[float, float] | None:
    """Plain steps of a step, of which a share has drafts of so many tokens, and the standard error
    of its logarithm by the costs."""
    if not share or not mean_k:
        return 1.0, 0.0  # nothing is proposed: plain steps
    found = costs.round_at(running, mean_k)
    if found is None:
        return None
    cost, error = found
    step_cost = 1 + share * (cost - 1)
    drafted = costs.nearest(running).share_drafted
    # What is uncertain is the cost of rounds: with fewer of them among the steps, less is.
    error *= min(share / drafted * (1 + drafted * (cost - 1)) / step_cost, 2.0)
    return step_cost, error


def _times_as_slow(expected_s: float, sums: _Sums) -> float | None:
    """What a token of a text takes now over what the server's table says it would; None where
    nothing is said of now."""
    if sums.timed_tokens <= 0 or sums.timed_s <= 0:
        return None
    return sums.timed_s / sums.timed_tokens / expected_s


def _explained(
    per_step: float, step_cost: float, slower: float, cost_now: float
) -> tuple[float, ...]:
    """Speedups, where steps are so many times as slow as was expected: if it is drafting that was
    not expected; if plain steps are as many times as slow, with longer texts or a slower machine;
    and if they are slower by the same seconds, as by sampling."""
    if slower <= 1:
        return speedup(per_step, step_cost * slower), speedup(per_step, step_cost)
    more = cost_now * (slower - 1)  # in plain steps
    return (
        speedup(per_step, step_cost * slower),
        speedup(per_step, step_cost),
        speedup(per_step * (1 + more), step_cost + more),
    )


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
