"""What the load decides: the best arm at each, where off wins, the schedule that follows."""

from __future__ import annotations

from dataclasses import dataclass

from outdraft.decide.verdict import DONT_SHIP, SHIP, SHIP_FOR
from outdraft.report.figures.arms import off_of
from outdraft.report.tune_table import best_of, decision_of
from outdraft.stats import Ratio
from outdraft.tune.results import ArmResult, LoadResult, Results


@dataclass(frozen=True, slots=True)
class LoadRow:
    load: LoadResult
    off: ArmResult | None
    best: ArmResult | None
    decision: str

    @property
    def ratio(self) -> Ratio | None:
        return None if self.best is None else self.best.measured


def load_rows(results: Results) -> tuple[LoadRow, ...]:
    return tuple(
        LoadRow(each, off_of(each), best_of(each), decision_of(each)) for each in results.loads
    )


def load_axis(results: Results) -> tuple[str, tuple[str, ...]]:
    """What the loads differ in, and each one's value."""
    loads = results.loads
    if all(load.concurrency is not None for load in loads):
        return "concurrency", tuple(f"{load.concurrency}" for load in loads)
    if all(load.rate is not None for load in loads):
        return "requests/s", tuple(f"{load.rate:g}" for load in loads)
    return "load", tuple(load.name for load in loads)


def schedule_rows(results: Results) -> tuple[tuple[str, int], ...]:
    """(requests running, k). The last range is for all that are more: its end is only a bound."""
    last = len(results.schedule) - 1
    return tuple(
        (f"{start}+" if at == last else f"{start}" if start == end else f"{start}–{end}", k)
        for at, (start, end, k) in enumerate(results.schedule)
    )


def crossover(results: Results) -> str:
    """Where off begins to win, in words; from the verdicts, in the order of the loads."""
    rows = sorted(load_rows(results), key=lambda row: _size(row.load))
    if not rows:
        return "No load was measured."
    decided = [(row.load.name, _outcome(row)) for row in rows]
    wins = [name for name, outcome in decided if outcome == "wins"]
    loses = [name for name, outcome in decided if outcome == "loses"]
    unclear = [name for name, outcome in decided if outcome == "unclear"]
    without = [name for name, outcome in decided if outcome == "without"]
    parts = []
    if len(wins) == len(decided):
        where = "at the load measured" if len(wins) == 1 else "at every load measured"
        parts.append(f"Speculation wins {where}: no crossover was found.")
    elif wins and loses:
        last, first = _last_before(decided)
        if last is not None and first is not None:
            parts.append(
                f"Speculation wins up to {last} and off wins from {first} on: the crossover lies "
                "between the two."
            )
        else:
            parts.append(f"Speculation wins at {', '.join(wins)}; off wins at {', '.join(loses)}.")
    elif wins:
        parts.append(f"Speculation wins at {', '.join(wins)}.")
    elif loses:
        parts.append(f"Off wins at {', '.join(loses)}: no load was found where speculation pays.")
    if unclear:
        parts.append(f"Not clear at {', '.join(unclear)}.")
    if without:
        parts.append(f"Nothing could be measured at {', '.join(without)}.")
    return " ".join(parts)


def _size(load: LoadResult) -> float:
    return float(load.concurrency or load.rate or 0.0)


def _outcome(row: LoadRow) -> str:
    if row.load.verdict is None:  # the time was over; what there is may say something
        return "without" if row.ratio is None else "unclear"
    decision = row.load.verdict["decision"]
    return {SHIP: "wins", SHIP_FOR: "wins", DONT_SHIP: "loses"}.get(decision, "unclear")


def _last_before(decided: list[tuple[str, str]]) -> tuple[str | None, str | None]:
    """The last win and the first loss, if all wins come before all losses."""
    wins = [at for at, (_, outcome) in enumerate(decided) if outcome == "wins"]
    loses = [at for at, (_, outcome) in enumerate(decided) if outcome == "loses"]
    if wins[-1] < loses[0]:
        return decided[wins[-1]][0], decided[loses[0]][0]
    return None, None
