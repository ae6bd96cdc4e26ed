"""Results of a search, put together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from outdraft.decide.verdict import INCONCLUSIVE
from outdraft.measure.environment import fingerprint
from outdraft.speculation import OFF, Speculation
from outdraft.tune.arm import name_of, proposer_name
from outdraft.tune.journal import Journal
from outdraft.tune.outcome import acceptance_results, load_result, prediction_result
from outdraft.tune.results import MemoryResult, Pruned, Results
from outdraft.tune.schedule import schedule_of
from outdraft.tune.session import Finished, Search


@dataclass(frozen=True, slots=True)
class Given:
    """What was known before anything was measured."""

    settings: Mapping[str, Any]
    backend: str
    target: str
    pruned: tuple[Pruned, ...] = ()
    memory: Callable[[Speculation], MemoryResult | None] = lambda speculation: None


def make_results(
    given: Given, search: Search, finished: list[Finished], journal: Journal
) -> Results:
    loads = tuple(
        load_result(search.arms, each, journal, search.rules.objective) for each in finished
    )
    speculations = {name_of(arm): arm for arm in search.arms}
    main = loads[0]
    best = OFF if main.best is None else speculations[main.best]
    calibrated = {each.load.name: each.standing.calibrated for each in finished}
    return Results(
        settings=dict(given.settings),
        environment=fingerprint(),
        backend=given.backend,
        target=given.target,
        objective=search.rules.objective.name,
        loads=loads,
        acceptance=acceptance_results(search.arms, search.loads, journal),
        pruned=given.pruned,
        prediction=prediction_result(loads, calibrated),
        schedule=() if best.is_off else schedule_of(loads, proposer_name(best), speculations),
        memory=given.memory(best),
        main_load=main.name,
        started_at=journal.started_at,
        duration_s=journal.elapsed_s(),
        num_requests=sum(len(each.records) for each in journal.blocks.values()),
        notes=_notes(finished, journal),
        is_complete=not any(each.is_out_of_time for each in finished),
    )


def _notes(finished: list[Finished], journal: Journal) -> tuple[str, ...]:
    notes = [
        f"{each.load.name}: {why}" for each in finished if (why := _why_unclear(each, journal))
    ]
    for each in finished:
        failed = [one for (load, _), one in journal.failures.items() if load == each.load.name]
        by_reason: dict[str, list[str]] = {}
        for one in failed:
            by_reason.setdefault(one.reason, []).append(one.arm)
        notes += [f"{each.load.name}: failed: {', '.join(names)} ({reason})"
                  for reason, names in by_reason.items()]  # fmt: skip
    names = {each.load.name for each in finished}
    blocks = [each for each in journal.blocks.values() if each.load in names]
    unfit = sum(bool(each.problems) for each in blocks)
    if unfit:
        notes.append(
            f"{unfit} of {len(blocks)} blocks are left out: the client was not fit to "
            "measure (see the journal)"
        )
    return tuple(notes)


def _why_unclear(finished: Finished, journal: Journal) -> str:
    """Nothing where it is clear."""
    standing = finished.standing
    if standing.is_clear:
        return ""
    if (finished.load.name, name_of(OFF)) in journal.failures:
        return "off failed, and without it nothing can be compared"
    if finished.is_out_of_time:
        has_verdict = standing.verdict is not None and standing.verdict.decision != INCONCLUSIVE
        what = "it was clear which of the raced arms is the best" if has_verdict else (
            "the answer was clear"
        )  # fmt: skip
        return f"the time was over before {what}"
    if standing.best is None:
        return "every arm but off failed"
    return "all blocks are spent, and the answer is not clear"
