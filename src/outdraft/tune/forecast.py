"""From the first blocks of a load to a prediction for every arm. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import exp, fsum, log

from outdraft.measure.evidence import ratio_of
from outdraft.measure.summary import added
from outdraft.records import AcceptanceCounts, Record
from outdraft.speculation import Speculation
from outdraft.stats import percentile
from outdraft.tune.arm import by_proposer, name_of
from outdraft.tune.journal import Block
from outdraft.tune.pace import Pace, common_table, mean_running, pace_of, seconds_at
from outdraft.tune.prediction import (
    Curve,
    Profile,
    between,
    drafted_per_step,
    num_steps_at,
    num_tokens,
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
    base = _pace(off)
    stall = _stall([pace for each in (off, *measured.values()) if (pace := _pace(each))])
    table = common_table([*off, *(block for blocks in measured.values() for block in blocks)])
    verify = None if base is None else _verify(table, mean_running(off), base.step)
    found: dict[str, float] = {}
    for members in by_proposer(arms).values():
        known = [arm for arm in members if measured.get(name_of(arm))]
        if not known:
            continue
        longest = max(known, key=lambda arm: arm.k)
        profile = _profile(longest, measured[name_of(longest)])
        own = _pace(measured[name_of(longest)])
        curve = None if base is None else _curve(known, base, measured, verify)
        if profile is None or own is None or base is None or curve is None:
            found |= _between_measured(members, known, _records(off), measured, objective)
            continue
        first = (0.0, 0.0) if objective == "tpot" else (base.first, own.first)
        texts = _texts(longest, measured[name_of(longest)]) or [profile]
        for arm in members:
            cost = curve.at(drafted_per_step(profile, arm.k))
            found[name_of(arm)] = _typical(
                _speedup(text, cost, arm.k, base, first, stall) for text in texts
            )
    return found


def _speedup(
    text: Profile, cost: float, k: int, base: Pace, first: tuple[float, float], stall: float
) -> float:
    """Of one text: how many times as fast, if its steps cost so many plain ones."""
    off = first[0] + stall + num_tokens(text) * base.step
    return off / (first[1] + stall + num_steps_at(text, k) * cost * base.step)


def _typical(speedups: Iterable[float]) -> float:
    """Texts differ, and a request is what is measured, not the sum of all: the geometric mean."""
    logs = [log(each) for each in speedups]
    return exp(fsum(logs) / len(logs))


def _texts(arm: Speculation, blocks: Sequence[Block]) -> list[Profile]:
    """The profile of every text of two tokens or more, where the answers tell of their rounds."""
    found = []
    for each in _records(blocks) if _is_told(blocks) else ():
        tokens = each.completion_tokens or 0
        if each.ok and each.acceptance is not None and tokens > 1:
            profile = profile_of(each.acceptance, arm.k, tokens, 1)
            # A text without a draft is steps and nothing else.
            found.append(profile or Profile(arm.k, (0,) * (arm.k + 1), tokens - 1))
    return found


def _is_told(blocks: Sequence[Block]) -> bool:
    """Whether answers tell of rounds and places, or only the server's counters do."""
    counts = added(_records(blocks))
    return bool(counts.num_drafts and counts.accepted_per_position)


def _stall(paces: Sequence[Pace]) -> float:
    """What a request waits for others: the same whatever the arm, so the middle of all."""
    return max(percentile([each.stall for each in paces], 0.5), 0.0) if paces else 0.0


def _between_measured(
    members: Sequence[Speculation],
    known: Sequence[Speculation],
    base: Sequence[Record],
    measured: Mapping[str, Sequence[Block]],
    objective: str,
) -> dict[str, float]:
    """In straight lines from 1 without a draft through the speedups that were measured."""
    name = "e2e" if objective == "goodput" else objective
    points = {0.0: 1.0}
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
    if not _is_told(blocks):
        counted = [each.counted for each in blocks if each.counted is not None]
        if counted:
            counts, told = sum_counts(counted), records
    return counts, sum(each.completion_tokens or 0 for each in told), len(told)


def _verify(
    table: Mapping[int, float], running: float, plain: float
) -> Callable[[float], float] | None:
    """Draft tokens a sequence → what verifying them costs, in plain steps of `plain` seconds.

    The engine tells what steps of some sizes take on short texts; what longer ones add to a plain
    step they add to a longer one too.
    """
    if len(table) < 2:
        return None
    least = seconds_at(table, running)
    return lambda drafted: 1 + (seconds_at(table, running * (1 + drafted)) - least) / plain


def _pace(blocks: Sequence[Block]) -> Pace | None:
    records = _records(blocks)
    done = [each for each in records if each.ok and each.completion_tokens]
    behind_first = sum(each.completion_tokens or 0 for each in done) - len(done)
    if _is_told(blocks):
        return pace_of(blocks, behind_first - added(done).num_accepted_tokens)
    if any(each.counted for each in blocks) and any(not each.ok for each in records):
        return None  # the server counted the drafts of failed requests too
    return pace_of(blocks, behind_first - counts_of(blocks)[0].num_accepted_tokens)


def _profile(arm: Speculation, blocks: Sequence[Block]) -> Profile | None:
    counts, num_tokens, num_texts = counts_of(blocks)
    return profile_of(counts, arm.k, num_tokens, num_texts)


def _curve(
    known: Sequence[Speculation],
    base: Pace,
    measured: Mapping[str, Sequence[Block]],
    verify: Callable[[float], float] | None,
) -> Curve | None:
    points = {}
    for arm in known:
        blocks = measured[name_of(arm)]
        profile, pace = _profile(arm, blocks), _pace(blocks)
        if profile is not None and pace is not None:
            points[drafted_per_step(profile, arm.k)] = pace.step / base.step
    return Curve(points, verify) if points else None


def _records(blocks: Sequence[Block]) -> list[Record]:
    return [each for block in blocks for each in block.records if not each.is_warmup]


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
