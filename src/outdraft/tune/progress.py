"""What there is to show of a search while it goes on. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from outdraft.measure.plateau import counted_ns
from outdraft.speculation import OFF, Speculation
from outdraft.stats.ratios import Ratio
from outdraft.tune.arm import FINAL, Load, name_of, proposer_name
from outdraft.tune.journal import (
    Block,
    Failure,
    Journal,
    Start,
    count_drafts,
    done_records,
    valid_records,
)
from outdraft.tune.race import Standing
from outdraft.tune.results import LoadResult
from outdraft.tune.rules import SearchSettings

PROFILE, RACE, TEXTS = "profile", "race", "texts"  # phases, as FINAL and SCHEDULE are


@dataclass(frozen=True, slots=True)
class ArmFigures:
    """Of one arm under one load, from what was measured so far."""

    proposer: str
    num_requests: int = 0  # that succeeded
    tokens_per_s: float | None = None
    acceptance: float | None = None
    measured: Ratio | None = None  # over off: in the final where it has begun, else in the race
    start_s: float | None = None  # of the engine, where that was started here


@dataclass(frozen=True, slots=True)
class Progress:
    """Before a block is measured, and after it."""

    phase: str
    load: Load
    standing: Standing
    arm: Speculation | None  # measured now; None between two
    elapsed_s: float
    budget_s: float
    arms: tuple[Speculation, ...] = ()  # all of the search, without off
    figures: Mapping[str, ArmFigures] = field(default_factory=dict)  # by the arms' names
    finished: tuple[LoadResult, ...] = ()  # loads
    entry: Block | Failure | Start | None = None  # that has just been written
    num_blocks: int | None = None  # of the phase, where that is known


class Display(Protocol):
    """Shows a run while it goes on."""

    def note(self, words: str) -> None: ...
    def progress(self, progress: Progress) -> None: ...
    def starting(
        self, arm: str, seconds: float, line: str, usual_s: float | None
    ) -> None: ...  # `usual_s`: what earlier starts took
    def answered(self, done: int, total: int) -> None: ...  # of the requests of a block


FiguresCache = dict[tuple[object, ...], ArmFigures]


def figures_of(
    settings: SearchSettings,
    load: Load,
    best: Speculation | None,
    journal: Journal,
    cache: FiguresCache,
) -> dict[str, ArmFigures]:
    """Of the arms that were measured or started here, off first. `best`: judged in the final."""
    race = load.in_part("")
    final = race.in_part(FINAL, "" if best is None else name_of(best)).name
    found = {}
    for arm in (OFF, *settings.arms):
        name = name_of(arm)
        blocks = journal.of(race.name, name)
        off = journal.of(race.on(settings.cards.of(arm)).name, name_of(OFF))
        if arm in (OFF, best) and (judged := journal.of(final, name)):
            blocks, off = judged, journal.of(final, name_of(OFF))
        starts = [each.duration_s for each in journal.starts if each.arm == name]
        if blocks or starts:
            key = (name, _keys(blocks), _keys(off), len(starts))
            if key not in cache:
                cache[key] = _figures(settings, arm, blocks, off, starts)
            found[name] = cache[key]
    return found


def _keys(blocks: Sequence[Block]) -> tuple[tuple[str, int, bool], ...]:
    """With the load, whose name says whether they are of the race or of the final."""
    return tuple((each.load, each.block, each.is_again) for each in blocks)


def _figures(
    settings: SearchSettings,
    arm: Speculation,
    blocks: Sequence[Block],
    off: Sequence[Block],
    starts: Sequence[float],
) -> ArmFigures:
    done, spent_ns = done_records(blocks), sum(counted_ns(each.records) for each in blocks)
    num_tokens = sum(each.completion_tokens or 0 for each in done)
    ratio = None
    if not arm.is_off and off and blocks:
        ratio = settings.rules.objective.ratio(valid_records(off), valid_records(blocks))
    return ArmFigures(
        proposer=proposer_name(arm),
        num_requests=len(done),
        tokens_per_s=num_tokens / spent_ns * 1e9 if spent_ns else None,
        acceptance=count_drafts(blocks)[0].rate if blocks and not arm.is_off else None,
        measured=ratio,
        start_s=starts[-1] if starts else None,
    )
