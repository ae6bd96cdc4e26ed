"""The schedule that the loads have led to, measured as an arm of its own beside off.

It comes last and takes what the budget has left. Its blocks are a part of their own in the
journal, so that they change nothing of what the loads have found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from outdraft.speculation import OFF, Speculation
from outdraft.stats import MIN_BLOCKS
from outdraft.tune.arm import Load, name_of
from outdraft.tune.journal import Block, Journal
from outdraft.tune.objective import Objective
from outdraft.tune.results import Results, ScheduleResult
from outdraft.tune.session import Measure, Search, Told
from outdraft.tune.standing import Standing

_ERROR = 0.05  # of the intervals at all loads together


def part_of(load: Load) -> Load:
    return replace(load, part="schedule")


def scheduled_arm(results: Results, arms: Mapping[str, Speculation]) -> Speculation | None:
    """The best arm of the main load with the schedule; None where there is nothing to switch."""
    load = results.main
    longest = max((k for _, _, k in results.schedule), default=0)
    best = None if load is None or load.best is None else arms.get(load.best)
    if best is None or len(results.schedule) < 2 or not longest:
        return None
    return replace(best, k=longest, schedule=results.schedule)


def with_schedule(
    results: Results,
    settings: Search,
    journal: Journal,
    measure: Measure,
    tell: Callable[[Told], None] = lambda told: None,
) -> Results:
    """What the schedule gives, added to the results, where the engine has one."""
    arm = scheduled_arm(results, {name_of(each): each for each in settings.arms})
    if arm is None or not settings.has_schedule:
        return results
    measure_schedule(settings, arm, journal, measure, tell)
    return replace(
        results,
        scheduled=schedule_results(settings, arm, journal),
        duration_s=journal.elapsed_s(),
        num_requests=sum(len(each.records) for each in journal.blocks.values()),
    )


def measure_schedule(
    settings: Search,
    arm: Speculation,
    journal: Journal,
    measure: Measure,
    tell: Callable[[Told], None] = lambda told: None,
) -> None:
    """At each load as many blocks as an interval needs, while there is time for whole ones."""
    first = settings.rules.max_blocks  # other marks on the prompts than any block before
    for load in settings.loads:
        where = part_of(load)
        for number in range(first, first + MIN_BLOCKS):
            if any((where.name, name_of(each)) in journal.failures for each in (OFF, arm)):
                break
            if not _has_time(settings, load, arm, number, journal):
                return
            order = (OFF, arm) if number % 2 == 0 else (arm, OFF)
            for each in order:
                if (where.name, name_of(each), number) in journal.blocks:
                    continue
                now = Standing(next_arms=order, next_block=number - first)
                tell(Told(where, now, each, journal.elapsed_s(), settings.budget_s))
                journal.add(measure(where, each, number))


def _has_time(
    settings: Search, load: Load, arm: Speculation, number: int, journal: Journal
) -> bool:
    """For one more block of both. What is there of it already does not count: a run that was
    killed within it asks the same question."""
    where, off = part_of(load).name, journal.of(load.name, name_of(OFF))
    if not off:
        return False
    begun = [each for each in journal.blocks.values() if (each.load, each.block) == (where, number)]
    before = journal.elapsed_s() - sum(each.duration_s for each in begun)
    is_up = any(each.block < number for each in _all_of(journal, arm))
    start_s = 0.0 if is_up else max(each.start_s for each in journal.blocks.values())
    needed = 2 * (off[-1].duration_s - off[-1].start_s) + start_s
    return before + needed <= settings.budget_s


def _all_of(journal: Journal, arm: Speculation) -> list[Block]:
    return [each for each in journal.blocks.values() if each.arm == name_of(arm)]


def schedule_results(
    settings: Search, arm: Speculation, journal: Journal
) -> tuple[ScheduleResult, ...]:
    """Loads at which nothing was measured are left out."""
    level = 1 - _ERROR / len(settings.loads)
    found = (
        _result(load, arm, journal, settings.rules.objective, level) for load in settings.loads
    )
    return tuple(each for each in found if each is not None)


def _result(
    load: Load, arm: Speculation, journal: Journal, objective: Objective, level: float
) -> ScheduleResult | None:
    where = part_of(load).name
    failure = journal.failures.get((where, name_of(arm)))
    off, own = (
        [record for block in journal.of(where, name_of(each)) if not block.problems
         for record in block.records]
        for each in (OFF, arm)
    )  # fmt: skip
    ratio = objective.ratio(off, own, level=level) if off and own else None
    if ratio is None and failure is None:
        return None
    return ScheduleResult(load.name, ratio, "" if failure is None else failure.reason)
