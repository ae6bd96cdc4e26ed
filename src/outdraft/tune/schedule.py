"""Draft length by running requests, from what each load has proven. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outdraft.decide.verdict import SHIP
from outdraft.speculation import Speculation
from outdraft.tune.arm import proposer_name
from outdraft.tune.results import BEST, DROPPED, RACED, ArmResult, LoadResult

_LAST = 4096  # requests running; the last entry goes on to here


@dataclass(frozen=True, slots=True)
class _Choice:
    concurrency: int
    k: int  # 0: off


def schedule_of(
    loads: Sequence[LoadResult], proposer: str, speculations: Mapping[str, Speculation]
) -> tuple[tuple[int, int, int], ...]:
    """(from, to, k) for one proposer. At each concurrency the draft length that is proven to win
    there, else 0; between two of them the change is half-way (as ratios). A load that ended before
    there were predictions says nothing."""
    choices = []
    for load in sorted(loads, key=lambda each: each.concurrency or 0):
        has_answer = load.best is not None or any(arm.predicted is not None for arm in load.arms)
        if load.concurrency is None or not has_answer:
            continue
        own = {
            arm.name: speculations[arm.name].k
            for arm in load.arms
            if arm.name in speculations and proposer_name(speculations[arm.name]) == proposer
        }
        if own:
            choices.append(_Choice(load.concurrency, _k_at(load, own)))
    entries: list[tuple[int, int, int]] = []
    start = 1
    for place, choice in enumerate(choices):
        is_last = place == len(choices) - 1
        beyond = choices[place + 1].concurrency if not is_last else 0
        end = _LAST if is_last else max(round((choice.concurrency * beyond) ** 0.5), start)
        if entries and entries[-1][2] == choice.k:
            entries[-1] = (entries[-1][0], end, choice.k)
        else:
            entries.append((start, end, choice.k))
        start = end + 1
    return tuple(entries)


def _k_at(load: LoadResult, ks: Mapping[str, int]) -> int:
    """The fastest of those that win for sure, or the shortest draft that is not told apart from
    it: a longer one has more to lose when traffic changes."""
    winners = [arm for arm in load.arms if arm.name in ks and _wins(arm, load)]
    if not winners:
        return 0
    best = max(winners, key=lambda arm: (arm.name == load.best, _estimate(arm)))
    same = [arm for arm in winners if arm is best or _as_good(arm, best)]
    return min(ks[arm.name] for arm in same)


def _wins(arm: ArmResult, load: LoadResult) -> bool:
    """Measured, and better than off by its interval, or by the verdict."""
    if arm.state not in (BEST, RACED, DROPPED) or arm.measured is None:
        return False
    is_shipped = arm.name == load.best and (load.verdict or {}).get("decision") == SHIP
    return is_shipped or (arm.measured.low is not None and arm.measured.low > 1)


def _as_good(arm: ArmResult, best: ArmResult) -> bool:
    """Its interval reaches to the best one's; whether it raced to the end is no matter."""
    high = None if arm.measured is None else arm.measured.high
    return arm is not best and high is not None and high >= _estimate(best)


def _estimate(arm: ArmResult) -> float:
    return 0.0 if arm.measured is None else arm.measured.estimate
