"""The arms of a tuning run on a terminal, as much of them as its width holds. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from outdraft.durations import format_duration
from outdraft.report.numbers import acceptance_cell
from outdraft.report.tables import decision_text
from outdraft.speculation import OFF
from outdraft.tune.arm import FINAL, SCHEDULE, name_of, proposer_name, short_names
from outdraft.tune.progress import TEXTS, ArmFigures, Progress
from outdraft.tune.race import Standing
from outdraft.tune.results import LoadResult
from outdraft.tune.wording import speedup_text

_GAP = 2  # between columns
_MOST_ROWS, _FEWEST_ROWS = 16, 5
_AROUND = 6  # lines that are no arm
# Columns are no narrower than this, so that the layout does not change with every figure: a
# speedup without an interval is the longest.
_WIDTHS = {"state": 22, "measured": 19, "speedup": 19}
_ARM, _STATE = "arm", "state"
_TITLES = {
    _ARM: "",
    "predicted": "predicted",
    "measured": "measured over off",
    "speedup": "speedup over off",
    "requests": "requests",
    "rate": "tokens/s",
    "acceptance": "acceptance",
    _STATE: "",
}
# The first that fits; True: with the arms' full names
_LAYOUTS = (
    (True, ("predicted", "measured", "requests", "rate", "acceptance")),
    (False, ("predicted", "measured", "requests", "rate", "acceptance")),
    (False, ("speedup", "requests", "rate", "acceptance")),
    (False, ("speedup", "requests", "rate")),
    (False, ("speedup", "requests")),
    (False, ("speedup",)),
)


@dataclass(frozen=True, slots=True)
class Starting:
    """An engine that is starting."""

    name: str  # of the arm, or of the proposer that the engine serves
    seconds: float
    usual_s: float | None  # that earlier ones took
    line: str = ""  # the newest of its log


@dataclass(frozen=True, slots=True)
class Moment:
    """What goes on besides the progress that was told last."""

    since_s: float = 0.0  # that was told
    starting: Starting | None = None
    answered: tuple[int, int] | None = None  # requests of the block, all of them
    standings: Mapping[str, Standing] = field(default_factory=dict)  # the last of each load


@dataclass(frozen=True, slots=True)
class ArmRow:
    name: str
    short: str
    cells: Mapping[str, str]
    is_now: bool = False


def tuning_view(progress: Progress, moment: Moment, width: int, height: int) -> RenderableType:
    """Loads that are finished, the arms of the one that is measured, the time."""
    lines = [_fitting(finished_line(each), width) for each in progress.finished]
    num_rows = min(max(height - _AROUND - len(lines), _FEWEST_ROWS), _MOST_ROWS)
    names = arms_shown(progress, moment)
    more = len(names) - num_rows
    rows = [_row(progress, moment, name) for name in names[:num_rows]]
    parts: list[RenderableType] = [Text(line) for line in lines]
    parts += [Text(_fitting(search_heading(progress), width), style="bold"), _table(rows, width)]
    if more > 0:
        parts.append(_dim(f"… and {more} more"))
    parts.append(_dim(_fitting(time_line(progress, moment), width)))
    if moment.starting is not None and moment.starting.line:
        parts.append(_dim(_fitting(moment.starting.line, width)))
    return Group(*parts)


def search_heading(progress: Progress) -> str:
    """E.g. "concurrency 1 · final · block 4 of 17"."""
    load, number = progress.load.in_part("").name, progress.standing.next_block + 1
    words = {TEXTS: "off's texts once more", SCHEDULE: "the schedule"}
    of = "" if progress.num_blocks is None else f" of {progress.num_blocks}"
    return f"{load} · {words.get(progress.phase, progress.phase)} · block {number}{of}"


def time_line(progress: Progress, moment: Moment) -> str:
    elapsed_s = min(progress.elapsed_s + moment.since_s, progress.budget_s)
    spent = f"{format_duration(elapsed_s)} of {format_duration(progress.budget_s)}"
    return f"{spent} · at most {format_duration(progress.budget_s - elapsed_s)} left"


def finished_line(load: LoadResult) -> str:
    best = load.best_arm
    if best is None or load.verdict is None:
        return f"{load.name}: done, without a verdict"
    return f"{load.name}: {best.name} {speedup_text(best.measured)} {decision_text(load.verdict)}"


def starting_words(starting: Starting) -> str:
    """E.g. "starting: 12s, 30s left"."""
    words = f"starting: {format_duration(starting.seconds)}"
    if starting.usual_s is None:
        return words
    left_s = starting.usual_s - starting.seconds
    return f"{words}, {format_duration(left_s)} left" if left_s >= 1 else f"{words}, late"


def arms_shown(progress: Progress, moment: Moment | None = None) -> list[str]:
    """Off and what was measured or started, in the order of the search; what is next, what failed;
    then the best predictions."""
    standing = _standing(progress, moment or Moment())
    known = [name_of(arm) for arm in (*standing.finalists, *standing.next_arms)]
    now = [] if progress.arm is None else [name_of(progress.arm)]
    told = [*progress.figures, *now, *known, *standing.failed]
    order = {name_of(arm): at for at, arm in enumerate((OFF, *progress.arms))}
    told.sort(key=lambda name: order.get(name, len(order)))
    predicted = sorted(standing.predicted, key=lambda name: -standing.predicted[name])
    return list(dict.fromkeys((name_of(OFF), *told, *predicted)))


def state_of(progress: Progress, name: str, moment: Moment | None = None) -> str:
    """What becomes of an arm, in a few words."""
    moment = moment or Moment()
    standing, figures = _standing(progress, moment), progress.figures.get(name)
    if moment.starting is not None and moment.starting.name in (name, _proposer(progress, name)):
        longest = _longest(progress, _proposer(progress, name))
        if moment.starting.name == name or name == longest:
            return starting_words(moment.starting)
    if progress.arm is not None and name == name_of(progress.arm) and moment.starting is None:
        if moment.answered is None:
            return "measuring"
        return f"{moment.answered[0]} of {moment.answered[1]} answers"
    if name in standing.failed:
        return "failed"
    if name in standing.dropped:
        return "dropped"
    if name == name_of(OFF):
        return "baseline" if figures and figures.num_requests else "next"
    if standing.best is not None and name == name_of(standing.best):
        return "is judged" if progress.phase == FINAL else "leads"
    if name in {name_of(arm) for arm in standing.alive}:
        return "in the race"
    if figures is not None and figures.num_requests:
        return "measured"
    if figures is not None and figures.start_s is not None:
        return f"started in {format_duration(figures.start_s)}"
    return "next" if name in {name_of(arm) for arm in standing.next_arms} else ""


def _standing(progress: Progress, moment: Moment) -> Standing:
    """Where it says nothing, as while texts are asked for again, the last one of the load."""
    standing = progress.standing
    if standing.predicted or standing.finalists or standing.failed:
        return standing
    last = moment.standings.get(progress.load.in_part("").name)
    return standing if last is None else replace(last, next_block=standing.next_block)


def _proposer(progress: Progress, name: str) -> str:
    if (figures := progress.figures.get(name)) is not None:
        return figures.proposer
    arm = next((each for each in progress.arms if name_of(each) == name), OFF)
    return proposer_name(arm)


def _longest(progress: Progress, proposer: str) -> str:
    """The arm that a proposer is started for."""
    members = [arm for arm in progress.arms if proposer_name(arm) == proposer]
    return name_of(max(members, key=lambda arm: arm.k)) if members else proposer


def _row(progress: Progress, moment: Moment, name: str) -> ArmRow:
    standing = _standing(progress, moment)
    figures = progress.figures.get(name) or ArmFigures(name)
    predicted, measured = standing.predicted.get(name), figures.measured
    guess = "" if predicted is None else f"{predicted:.2f}x"
    known = "" if measured is None else speedup_text(measured)
    return ArmRow(
        name,
        short_names(progress.arms).get(name, name),
        {
            "predicted": guess,
            "measured": known,
            "speedup": known or (f"≈ {guess}" if guess else ""),
            "requests": str(figures.num_requests or ""),
            "rate": "" if figures.tokens_per_s is None else f"{figures.tokens_per_s:.1f}",
            "acceptance": ""
            if figures.acceptance is None
            else acceptance_cell(figures.acceptance, figures.share_drafted),
            _STATE: state_of(progress, name, moment),
        },
        is_now=progress.arm is not None and name == name_of(progress.arm),
    )


def _table(rows: Sequence[ArmRow], width: int) -> Table:
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False)
    is_full, columns = _choose_layout(rows, width)
    for column in columns:
        justify = "left" if column in (_ARM, _STATE) else "right"
        table.add_column(_TITLES[column], justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for row in rows:
        style = "bold" if row.is_now else ""
        cells = [row.name if is_full else row.short, *(row.cells[each] for each in columns[1:])]
        table.add_row(*(Text(cell, style=style) for cell in cells))
    return table


def _choose_layout(rows: Sequence[ArmRow], width: int) -> tuple[bool, tuple[str, ...]]:
    for is_full, middle in _LAYOUTS:
        columns = (_ARM, *middle, _STATE)
        if _needed(rows, columns, is_full=is_full) <= width:
            break
    return is_full, columns


def _needed(rows: Sequence[ArmRow], columns: Sequence[str], *, is_full: bool) -> int:
    def cells(column: str) -> Iterator[str]:
        for row in rows:
            name = row.name if is_full else row.short
            yield name if column == _ARM else row.cells[column]

    widths = [
        max(len(_TITLES[column]), _WIDTHS.get(column, 0), *map(len, cells(column)))
        for column in columns
    ]
    return sum(widths) + _GAP * (len(columns) - 1)


def _fitting(line: str, width: int) -> str:
    """Whole words of a line, as many as the width holds."""
    line = " ".join(line.split())
    if len(line) <= width:
        return line
    cut = line[: width - 1]
    return f"{cut[: cut.rfind(' ')] if ' ' in cut else cut[:-1]} …"


def _dim(words: str) -> Text:
    return Text(words, style="dim")
