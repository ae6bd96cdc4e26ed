"""From the first blocks of a load to a prediction for every arm. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from outdraft.measure.costs import costs_of
from outdraft.measure.evidence import ratio_of
from outdraft.measure.summary import added
from outdraft.records import AcceptanceCounts, Record
from outdraft.speculation import Speculation
from outdraft.stats import percentile
from outdraft.tune.arm import by_proposer, name_of
from outdraft.tune.journal import Block
from outdraft.tune.prediction import (
    Curve,
    Profile,
    between,
    end_to_end,
    predicted_speedup,
    profile_of,
)


def forecast(
    arms: Sequence[Speculation],
    off: Sequence[Block],
    measured: Mapping[str, Sequence[Block]],  # name of an arm → its blocks
    objective: str,
) -> dict[str, float]:
    """Name of an arm → speedup in the objective. Proposers of which nothing is known are left out.

    Per proposer, the arm of the longest draft among `measured` gives the profile, and every one
    of them a point of the cost curve. Where the engine does not count rounds and places, what was
    measured is all there is.
    """
    base = _records(off)
    first_share = _first_share(base)
    found: dict[str, float] = {}
    for members in by_proposer(arms).values():
        known = [arm for arm in members if measured.get(name_of(arm))]
        if not known or not base:
            continue
        longest = max(known, key=lambda arm: arm.k)
        profile = _profile(longest, measured[name_of(longest)])
        curve = _curve(known, off, measured, members)
        if profile is None or curve is None:
            found |= _between_measured(members, known, base, measured, objective)
            continue
        first = ratio_of("ttft", base, _records(measured[name_of(longest)]), level=0.95, draws=50)
        for arm in members:
            per_token = predicted_speedup(profile, curve, arm.k)
            found[name_of(arm)] = (
                per_token
                if objective == "tpot"
                else end_to_end(
                    per_token,
                    first_share=first_share,
                    first_speedup=1.0 if first is None else first.estimate,
                )
            )
    return found


def _between_measured(
    members: Sequence[Speculation],
    known: Sequence[Speculation],
    base: Sequence[Record],
    measured: Mapping[str, Sequence[Block]],
    objective: str,
) -> dict[str, float]:
    """In straight lines from 1 without a draft through the speedups that were measured."""
    name = "e2e" if objective == "goodput" else objective
    points = {0: 1.0}
    for arm in known:
        ratio = ratio_of(name, base, _records(measured[name_of(arm)]), level=0.95, draws=50)
        if ratio is not None:
            points[arm.k] = ratio.estimate
    if len(points) == 1:
        return {}
    lines = sorted(points.items())
    return {name_of(arm): max(between(lines, arm.k), 0.0) for arm in members}


def counts_of(blocks: Sequence[Block]) -> tuple[AcceptanceCounts, int, int]:
    """Drafts, tokens and texts: what the answers told, else what the server's counters did."""
    records = _records(blocks)
    counts = added(records)
    told = [each for each in records if each.acceptance is not None]
    if not counts.num_drafts or not counts.accepted_per_position:
        counted = [each.counted for each in blocks if each.counted is not None]
        if counted:
            counts, told = sum_counts(counted), records
    return counts, sum(each.completion_tokens or 0 for each in told), len(told)


def verify_costs(
    step_seconds: Mapping[int, float], running: float, ks: Sequence[int]
) -> dict[int, float] | None:
    """Draft length → what verifying costs, in plain steps, with so many sequences running."""
    if len(step_seconds) < 2:
        return None
    plain = seconds_at(step_seconds, running)
    return {k: seconds_at(step_seconds, running * (k + 1)) / plain for k in ks}


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


def _profile(arm: Speculation, blocks: Sequence[Block]) -> Profile | None:
    counts, num_tokens, num_texts = counts_of(blocks)
    return profile_of(counts, arm.k, num_tokens, num_texts)


def _curve(
    known: Sequence[Speculation],
    off: Sequence[Block],
    measured: Mapping[str, Sequence[Block]],
    members: Sequence[Speculation],
) -> Curve | None:
    points = {}
    for arm in known:
        blocks = measured[name_of(arm)]
        tpot = ratio_of("tpot", _records(off), _records(blocks), level=0.95, draws=50)
        if tpot is None:
            continue
        costs = costs_of(*counts_of(blocks), tpot.estimate)
        if costs is not None:
            points[arm.k] = costs.round
    if not points:
        return None
    steps = next((each.step_seconds for each in off if each.step_seconds), {})
    verify = verify_costs(steps, mean_running(off), [arm.k for arm in members])
    return Curve(points, verify)


def _records(blocks: Sequence[Block]) -> list[Record]:
    return [each for block in blocks for each in block.records if not each.is_warmup]


def _first_share(records: Sequence[Record]) -> float:
    """Of a request's time, up to its first token; the middle request."""
    shares = [
        each.ttft_ns / each.e2e_ns
        for each in records
        if each.ok and each.ttft_ns is not None and each.e2e_ns
    ]
    return percentile(shares, 0.5) if shares else 0.0


def sum_counts(counted: Sequence[AcceptanceCounts]) -> AcceptanceCounts:
    places = max(len(each.accepted_per_position) for each in counted)
    padded = [
        (*each.accepted_per_position, *(0,) * (places - len(each.accepted_per_position)))
        for each in counted
    ]
    return AcceptanceCounts(
        num_drafts=sum(each.num_drafts for each in counted),
        num_draft_tokens=sum(each.num_draft_tokens for each in counted),
        num_accepted_tokens=sum(each.num_accepted_tokens for each in counted),
        accepted_per_position=tuple(map(sum, zip(*padded, strict=True))),
    )
