"""What to do, and at which loads: the one answer of a tuning run. Pure.

The page's headline, its table of loads, the last line, the files and `results.json` are all made of
this value, so that they cannot say different things. Its words are in `tune/wording.py`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from outdraft.decide.texts import TextFinding
from outdraft.decide.verdict import DONT_SHIP, SHIP_FOR
from outdraft.speculation import OFF, Schedule, Speculation, scheduled_k
from outdraft.stats.ratios import Ratio
from outdraft.tune.arm import proposer_name
from outdraft.tune.results import FAILED, ArmResult, LoadResult, Results


class Finding(StrEnum):
    """What was found out at a load."""

    WINS = "wins"  # for all of the traffic together
    PARTS = "wins in parts"  # of the traffic, not for all of it together
    LOSES = "does not pay"
    OTHER_TEXTS = "writes other texts"  # however fast it is
    UNCLEAR = "not proven"
    UNMEASURED = "not measured"


# What keeps settings off at the load that they are for.
_WITHOUT_WIN = {
    Finding.WINS: "no arm is known",
    Finding.PARTS: "only parts of the traffic win",
    Finding.LOSES: "it does not pay",
    Finding.OTHER_TEXTS: "it writes other texts",
    Finding.UNCLEAR: "nothing was proven",
    Finding.UNMEASURED: "nothing was measured",
}


class Recommendation(StrEnum):
    """What to do, in kinds."""

    ON = "on"  # at every load that was measured, and at all others
    ON_THOUGH = "on, though parts of the traffic lose"
    ON_IN_RANGE = "on in a range of loads"
    ON_FOR_PARTS = "on for parts of the traffic"
    OFF = "off"
    UNPROVEN = "off: not proven"
    UNMEASURED = "off: not measured"
    OUT_OF_TIME = "off: out of time"


class WhyOff(StrEnum):
    """Why it is off at a load."""

    NO = ""  # it is on
    FINDING = "finding"  # what was found there says so
    PROPOSER = "proposer"  # another proposer pays there, and a server runs one
    MAIN_LOAD = "main load"  # it pays there, and not at the main load, which the settings are for
    SCHEDULE = "schedule"  # the schedule says so


@dataclass(frozen=True, slots=True)
class LoadAnswer:
    load: LoadResult
    finding: Finding
    k: int  # the draft length that is recommended here; 0: off
    arm: str | None  # the name of the recommended arm, where it is on and was tried
    why_off: WhyOff = WhyOff.NO
    # What the recommended settings have here. Where nothing switches them it may be on though off
    # is recommended.
    settings_k: int = 0

    @property
    def is_on(self) -> bool:
        return self.k > 0

    @property
    def speedup(self) -> Ratio | None:
        """Of the arm that was judged."""
        return self.load.measured

    @property
    def size(self) -> float:
        return self.load.concurrency or self.load.rate or 0.0


@dataclass(frozen=True, slots=True)
class Band:
    """So many requests running: on, or off."""

    start: int
    end: int | None  # None: all above
    is_on: bool


@dataclass(frozen=True, slots=True)
class Switch:
    """Between these two loads, and nothing in between was measured."""

    below: LoadAnswer
    above: LoadAnswer
    at: int | None  # the last number of running requests before it, by the schedule


@dataclass(frozen=True, slots=True)
class RangeAnswer:
    settings: Speculation  # recommended; off is one
    advice: Recommendation
    loads: tuple[LoadAnswer, ...]  # the smallest first
    main: LoadAnswer | None
    bands: tuple[Band, ...]  # of the schedule; () where the settings do not switch
    switches: tuple[Switch, ...]
    has_schedule: bool  # whether the engine that was measured can follow one
    schedule_fault: str  # why the schedule is not used; empty where it is, or where there is none

    @property
    def is_on(self) -> bool:
        return not self.settings.is_off

    @property
    def losers(self) -> str:
        """The parts of the traffic that lose where it is on, in words; empty without such."""
        told = dict.fromkeys(each.load.losers for each in self.measured if each.is_on)
        found = [each for each in told if each]
        return found[0] if len(found) == 1 else "parts of the traffic lose by it" if found else ""

    @property
    def measured(self) -> tuple[LoadAnswer, ...]:
        return tuple(each for each in self.loads if each.finding is not Finding.UNMEASURED)

    @property
    def decided(self) -> tuple[LoadAnswer, ...]:
        """Those that were measured, and those at which it is off because nothing could be."""
        return tuple(
            each for each in self.loads if each.finding is not Finding.UNMEASURED or not each.is_on
        )

    @property
    def stays_on(self) -> tuple[LoadAnswer, ...]:
        """At which the settings have drafts though off is recommended."""
        return tuple(each for each in self.loads if each.settings_k and not each.is_on)

    def at(self, load: LoadResult) -> LoadAnswer:
        return next(each for each in self.loads if each.load is load)


def answer_of(results: Results) -> RangeAnswer:
    settings = recommended(results)
    loads = sorted(
        (_at_load(load, settings, results) for load in results.loads), key=lambda each: each.size
    )
    loads = [
        replace(each, settings_k=_settings_k(settings, each.load, results))
        for each in (loads if settings.schedule else _off_above_off(loads))
    ]
    main = next((each for each in loads if each.load is results.main), None)
    bands = _bands(settings.schedule)
    measured = [each for each in loads if each.finding is not Finding.UNMEASURED]
    return RangeAnswer(
        settings=settings,
        advice=_advice(loads, main, settings, bands),
        loads=tuple(loads),
        main=main,
        bands=bands,
        switches=tuple(
            Switch(below, above, _border(bands, below))
            for below, above in pairwise(measured)
            if below.is_on != above.is_on
        ),
        has_schedule=results.has_schedule is not False,
        schedule_fault=schedule_fault(results),
    )


def _settings_k(settings: Speculation, load: LoadResult, results: Results) -> int:
    """An engine that cannot switch has the draft length of the main load everywhere, as the files
    for it say."""
    at = results.main if results.has_schedule is False else load
    return 0 if at is None else settings.k_at(at.concurrency or 1)


def _off_above_off(loads: Sequence[LoadAnswer]) -> list[LoadAnswer]:
    """Loads, the smallest first. One that nothing was measured at is off where it already is at the
    nearest smaller one that was measured: drafts pay less as more runs."""
    found: list[LoadAnswer] = []
    is_off = False
    for each in loads:
        if each.finding is not Finding.UNMEASURED:
            is_off = not each.is_on
        elif is_off and each.is_on:
            each = replace(each, k=0, why_off=WhyOff.FINDING)
        found.append(each)
    return found


def found_at(load: LoadResult) -> Finding:
    if load.best_arm is None:
        return Finding.UNMEASURED
    if load.verdict is None:  # the time was over before there was one
        return Finding.UNMEASURED if load.measured is None else Finding.UNCLEAR
    if load.pays_for_all:
        return Finding.WINS
    if load.finding_on(load.best_arm) is TextFinding.OTHER:
        return Finding.OTHER_TEXTS
    decided = {SHIP_FOR: Finding.PARTS, DONT_SHIP: Finding.LOSES}
    return decided.get(load.verdict.decision, Finding.UNCLEAR)


def recommended(results: Results) -> Speculation:
    """The best arm of the main load, with the schedule, where it pays; else off. With a schedule
    that is not to be used, without it: the arm was judged so."""
    load = results.main
    if load is None or load.best_arm is None or found_at(load) is not Finding.WINS:
        return OFF
    best = replace(load.best_arm.speculation, schedule=())
    if len(results.schedule) < 2 or schedule_fault(results):
        return best
    longest = max(k for _, _, k in results.schedule)
    return replace(best, k=longest, schedule=results.schedule)


def schedule_fault(results: Results) -> str:
    """Why the schedule is not used; empty where it may be."""
    load = results.main
    if not results.schedule:
        return ""
    found = Finding.UNMEASURED if load is None else found_at(load)
    if load is None or load.best_arm is None or found is not Finding.WINS:
        return f"{_WITHOUT_WIN[found]} at the first load"
    if not any(k for _, _, k in results.schedule):
        return "it is off everywhere"
    if not scheduled_k(results.schedule, load.concurrency or 1):
        return "it is off at the first load, which pays"
    if lost := [each.load for each in results.scheduled if each.is_worse]:
        return f"it failed or lost at {', '.join(lost)}"
    best = load.best_arm.speculation
    unproven = [
        running for running in _unproven(results, best) if scheduled_k(results.schedule, running)
    ]
    if unproven:
        return f"it is on with {unproven[0]} running, where it was not shown to pay"
    return ""


def _unproven(results: Results, best: Speculation) -> list[int]:
    """Running requests with which the proposer of the best arm was not shown to pay, though more
    time would show nothing else."""
    return [
        load.concurrency
        for load in results.loads
        if load.concurrency is not None
        and (found_at(load) is not Finding.UNMEASURED or all_failed(load))
        and not _pays(load, best)
    ]


def _pays(load: LoadResult, best: Speculation) -> bool:
    judged = load.best_arm
    is_same = judged is not None and proposer_name(judged.speculation) == proposer_name(best)
    return is_same and found_at(load) is Finding.WINS


def _at_load(load: LoadResult, settings: Speculation, results: Results) -> LoadAnswer:
    finding, k = found_at(load), settings.k_at(load.concurrency or 1)
    if finding is Finding.UNMEASURED and all_failed(load):
        return LoadAnswer(load, finding, 0, None, WhyOff.FINDING)
    if finding is Finding.UNMEASURED:  # nothing speaks for or against what the settings have
        return LoadAnswer(load, finding, k, None, WhyOff.NO if k else WhyOff.FINDING)
    if finding is not Finding.WINS:
        return LoadAnswer(load, finding, 0, None, WhyOff.FINDING)
    main = results.main
    if main is None or found_at(main) is not Finding.WINS:
        return LoadAnswer(load, finding, 0, None, WhyOff.MAIN_LOAD)
    if main.best_arm is None or not _pays(load, main.best_arm.speculation):
        return LoadAnswer(load, finding, 0, None, WhyOff.PROPOSER)
    if not k:
        return LoadAnswer(load, finding, 0, None, WhyOff.SCHEDULE)
    arm = _arm_of(load, settings, k)
    return LoadAnswer(load, finding, k, None if arm is None else arm.name)


def _arm_of(load: LoadResult, settings: Speculation, k: int) -> ArmResult | None:
    wanted, proposer = load.best_arm, proposer_name(replace(settings, schedule=()))
    arms = [wanted, *load.arms] if wanted is not None else list(load.arms)
    return next(
        (
            arm
            for arm in arms
            if arm.speculation.k == k and proposer_name(arm.speculation) == proposer
        ),
        None,
    )


def _bands(schedule: Schedule) -> tuple[Band, ...]:
    """Neighbours that are both on, or both off, are one."""
    bands: list[Band] = []
    for start, end, k in schedule:
        if bands and bands[-1].is_on == (k > 0):
            start = bands.pop().start
        bands.append(Band(start, end, k > 0))
    # The end of the last one is only a bound.
    return (*bands[:-1], replace(bands[-1], end=None)) if bands else ()


def _border(bands: Sequence[Band], below: LoadAnswer) -> int | None:
    at = below.load.concurrency
    if at is None:
        return None
    within = (each for each in bands if each.start <= at and (each.end is None or at <= each.end))
    return next((each.end for each in within), None)


def _advice(
    loads: Sequence[LoadAnswer],
    main: LoadAnswer | None,
    settings: Speculation,
    bands: Sequence[Band],
) -> Recommendation:
    if main is None or main.finding is Finding.UNMEASURED:
        has_failed = main is None or all_failed(main.load)
        return Recommendation.UNMEASURED if has_failed else Recommendation.OUT_OF_TIME
    if not settings.is_off:
        is_whole = all(each.is_on for each in loads) and all(each.is_on for each in bands)
        if not is_whole:
            return Recommendation.ON_IN_RANGE
        has_losers = any(each.load.losers for each in loads)
        return Recommendation.ON_THOUGH if has_losers else Recommendation.ON
    kinds = {Finding.PARTS: Recommendation.ON_FOR_PARTS, Finding.UNCLEAR: Recommendation.UNPROVEN}
    return kinds.get(main.finding, Recommendation.OFF)


def all_failed(load: LoadResult) -> bool:
    """Whether more time would have changed nothing."""
    has_off = load.off is not None and not load.off.reason
    return not has_off or all(arm.state == FAILED for arm in load.arms if arm is not load.off)
