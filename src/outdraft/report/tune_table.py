"""The end of a tuning run, as plain text. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from outdraft.report.numbers import percent
from outdraft.report.tables import aligned
from outdraft.stats import Ratio
from outdraft.tune.results import PREDICTED, STATES, ArmResult, LoadResult, Results, ScheduleResult
from outdraft.tune.routing import routing_of

_SHOWN = 10  # arms of a load; the rest is in the report


def tune_table(results: Results) -> str:
    """A table for each load, the best first, then what to know."""
    parts = []
    for load in results.loads:
        parts += [load.name, _load_table(load), ""]
    error = results.prediction
    if error.num_arms and error.median_error is not None:
        parts.append(
            f"predictions: {100 * (error.within_15_percent or 0):.0f} % of {error.num_arms} arms "
            f"within 15 %, the middle one {100 * error.median_error:.0f} % off"
        )
    if len(results.schedule) > 1:
        steps = ", ".join(
            f"{low} to {high}: {f'k={k}' if k else 'off'}" for low, high, k in results.schedule
        )
        parts.append(f"by requests running: {steps}")
        parts += [f"  the schedule at {each.load}: {_scheduled_text(each)}"
                  for each in results.scheduled]  # fmt: skip
    parts += [f"left out: {each.name} ({each.reason})" for each in results.pruned]
    parts += [f"note: {note}" for note in results.notes]
    return "\n".join(parts).rstrip()


def _scheduled_text(found: ScheduleResult) -> str:
    if found.measured is None:
        return f"failed ({found.reason})"
    return f"{ratio_text(found.measured)} over off, n={found.measured.num_pairs}"


def best_line(results: Results) -> str:
    """E.g. `best: ngram k=5 · 1.84x [1.79, 1.90] over off · acceptance 0.71 · SHIP`."""
    load = results.main
    best = best_of(load) if load is not None else None
    if load is None or best is None:
        return f"best: off · nothing could be measured against it at {results.main_load}"
    words = [f"best: {best.name}", _speedup_text(best)]
    if best.acceptance_rate is not None:
        words.append(f"acceptance {best.acceptance_rate:.2f}")
    words += [decision_of(load), routing_of(load)]
    return " · ".join(each for each in words if each)


def _speedup_text(arm: ArmResult) -> str:
    if arm.measured is not None:
        return f"{ratio_text(arm.measured)} over off"
    return "not measured" if arm.predicted is None else f"{arm.predicted:.2f}x predicted only"


def best_of(load: LoadResult) -> ArmResult | None:
    return next((arm for arm in load.arms if arm.name == load.best), None)


def decision_of(load: LoadResult) -> str:
    if load.verdict is None:
        return "INCONCLUSIVE"
    where = ", ".join(load.verdict["ship_for"])
    return f"{load.verdict['decision']} {where}".rstrip()


def _load_table(load: LoadResult) -> str:
    ordered = sorted(load.arms, key=_order)
    heads = ("", "predicted", "measured over off", "n", "acceptance", "tokens/s", "")
    rows = [heads, *map(_row, ordered[:_SHOWN])]
    table = _with_last_to_the_left(rows)
    if len(ordered) > _SHOWN:
        table += f"\n… and {len(ordered) - _SHOWN} more in the report"
    return f"{table}\n{decision_of(load)}{_level_text(load)}"


def _level_text(load: LoadResult) -> str:
    """What the intervals are worth."""
    best = best_of(load)
    if best is None or best.measured is None or best.measured.low is None:
        return ""
    level = percent(best.measured.level).replace("\N{NO-BREAK SPACE}", " ")
    return f" · intervals of {level}: all looks and arms together miss in at most 5 %"


def _row(arm: ArmResult) -> tuple[str, ...]:
    return (
        arm.name,
        "" if arm.predicted is None else f"{arm.predicted:.2f}x",
        "" if arm.measured is None else ratio_text(arm.measured),
        str(arm.num_requests) if arm.num_requests else "",
        "" if arm.acceptance_rate is None else f"{arm.acceptance_rate:.2f}",
        "" if arm.tokens_per_s is None else f"{arm.tokens_per_s:.1f}",
        arm.state if not arm.reason else f"{arm.state}: {arm.reason}",
    )


def _order(arm: ArmResult) -> tuple[int, float]:
    """What was raced first: predictions of arms that nobody measured are often above all others."""
    is_known = arm.measured is not None and arm.state != PREDICTED
    worth = arm.measured.estimate if arm.measured is not None and is_known else arm.predicted
    return STATES.index(arm.state), -(worth or 0.0)


def _with_last_to_the_left(rows: Sequence[tuple[str, ...]]) -> str:
    width = max(len(row[-1]) for row in rows)
    return aligned([(*row[:-1], row[-1].ljust(width)) for row in rows])


def ratio_text(ratio: Ratio | None) -> str:
    if ratio is None:
        return "not measured"
    interval = "" if ratio.low is None else f" [{ratio.low:.2f}, {ratio.high:.2f}]"
    return f"{ratio.estimate:.2f}x{interval}"
