"""What there is to show of a search while it goes on. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from outdraft.measure.plateau import counted_ns
from outdraft.speculation import OFF, Speculation
from outdraft.stats.ratios import Ratio
from outdraft.tune.arm import FINAL, SCHEDULE, Load, name_of, proposer_name
from outdraft.tune.journal import (
    Block,
    Failure,
    Journal,
    Start,
    count_drafts,
    done_records,
    paired_blocks,
    valid_blocks,
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
    measured: Ratio | None = None  # over off
    start_s: float | None = None  # of the engine, where that was started here
    share_drafted: float | None = None  # of its steps: those that had a draft at all


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
    phase: str,
    load: Load,
    best: Speculation | None,
    journal: Journal,
    cache: FiguresCache,
) -> dict[str, ArmFigures]:
    """Of the arms that were measured or started here, off first: those of the race, in the final
    of off and the arm that is judged those of the final, of a schedule its own and off's alone.
    Of a final in visits there is no ratio: its interval would lack what visits differ by."""
    found = {}
    judged = [] if best is None else [best]
    for arm in (OFF, *(judged if phase == SCHEDULE else settings.arms)):
        own, others = _measured(settings, phase, load, arm, best, journal)
        blocks = paired_blocks(own, others) or valid_blocks(own)
        has_ratio = not arm.is_off and not (settings.in_visits and phase == FINAL)
        off = paired_blocks(others, blocks) if has_ratio else []
        name = name_of(arm)
        starts = [each.duration_s for each in journal.starts if each.arm == name]
        if own or starts:
            key = (name, _keys(blocks), _keys(off), len(starts))
            if key not in cache:
                cache[key] = _figures(settings, arm, blocks, off, starts)
            found[name] = cache[key]
    return found


def _measured(
    settings: SearchSettings,
    phase: str,
    load: Load,
    arm: Speculation,
    best: Speculation | None,
    journal: Journal,
) -> tuple[list[Block], list[Block]]:
    """What is shown of an arm, and those that it is compared with: off's, or beside off those of
    the arm that is judged."""
    race, off = load.in_part(""), name_of(OFF)
    subject = off if best is None else name_of(best)
    part = race.in_part(phase, subject).name
    own = journal.of(part, name_of(arm)) if phase in (FINAL, SCHEDULE) else []
    if own or phase == SCHEDULE:
        return own, journal.of(part, subject if arm.is_off else off)
    beside = race.on(settings.cards.of(arm)).name
    return journal.of(race.name, name_of(arm)), journal.of(beside, off)


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
    counts, written, num_texts = count_drafts(blocks)
    is_drafting = bool(blocks) and not arm.is_off
    ratio = None
    if off:
        ratio = settings.rules.objective.ratio(valid_records(off), valid_records(blocks))
    return ArmFigures(
        proposer=proposer_name(arm),
        num_requests=len(done),
        tokens_per_s=num_tokens / spent_ns * 1e9 if spent_ns else None,
        acceptance=counts.rate if is_drafting else None,
        share_drafted=counts.share_drafted(written, num_texts) if is_drafting else None,
        measured=ratio,
        start_s=starts[-1] if starts else None,
    )
