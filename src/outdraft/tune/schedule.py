"""The schedule: draft length by running requests, from the verdict at each load. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest

from outdraft.speculation import OFF, Schedule, Speculation
from outdraft.tune.arm import SCHEDULE, name_of, proposer_name
from outdraft.tune.journal import Journal, valid_records
from outdraft.tune.results import FAILED, ArmResult, LoadResult, ScheduleResult
from outdraft.tune.rules import SearchSettings

_LAST = 4096  # running requests; the last entry goes up to here
_ERROR = 0.05  # of the intervals at all loads together


def schedule_of(loads: Sequence[LoadResult], proposer: str) -> Schedule:
    """Of one proposer. At each concurrency the draft length that is proven to win there, else 0;
    between two of them it changes at their geometric mean. A load that ended before anything was
    known of its arms is left out."""
    choices = []
    for load in sorted(loads, key=lambda each: each.concurrency or 0):
        own = [arm for arm in load.arms if proposer_name(arm.speculation) == proposer]
        has_answer = load.best is not None or any(
            arm.predicted is not None or arm.state == FAILED for arm in load.arms
        )
        if own and has_answer and load.concurrency is not None:
            choices.append((load.concurrency, _k_at(load, own)))
    entries: list[tuple[int, int, int]] = []
    start = 1
    for (concurrency, k), beyond in zip_longest(choices, choices[1:]):
        end = _LAST
        if beyond is not None:
            end = max(round((concurrency * beyond[0]) ** 0.5), start)
        if entries and entries[-1][2] == k:
            entries[-1] = (entries[-1][0], end, k)
        else:
            entries.append((start, end, k))
        start = end + 1
    return tuple(entries)


def _k_at(load: LoadResult, arms: Sequence[ArmResult]) -> int:
    """Of the arm that was judged and wins, if it is one of `arms`; else 0. No other draft length
    was judged, however good it looked in the race."""
    judged = [arm.speculation.k for arm in arms if arm.name == load.best]
    return judged[0] if judged and load.pays_for_all else 0


def scheduled_arm(
    best: Speculation, schedule: Schedule, settings: SearchSettings
) -> Speculation | None:
    """The best arm with the schedule. None where the draft length never changes, and where the
    engine cannot change that of the method."""
    longest = max((k for _, _, k in schedule), default=0)
    if len(schedule) < 2 or not longest or best.method not in settings.schedule_methods:
        return None
    return replace(best, k=longest, schedule=schedule)


def schedule_results(
    arm: Speculation, settings: SearchSettings, journal: Journal
) -> tuple[ScheduleResult, ...]:
    """The schedule over off at each load; loads at which nothing was measured are left out."""
    level = 1 - _ERROR / len(settings.loads)
    results = []
    for load in settings.loads:
        where = load.in_part(SCHEDULE, name_of(arm)).name
        failure = journal.failures_at(where).get(name_of(arm))
        off, own = (valid_records(journal.of(where, name_of(each))) for each in (OFF, arm))
        ratio = settings.rules.objective.ratio(off, own, level=level) if off and own else None
        if ratio is not None or failure is not None:
            results.append(ScheduleResult(load.name, ratio, failure or ""))
    return tuple(results)
