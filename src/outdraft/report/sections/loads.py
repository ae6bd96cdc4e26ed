"""The best arm at each load, where off starts to win, and the schedule that follows from it."""

from collections.abc import Sequence

from outdraft.report.layout import figure, keys, lead, numbers_of, panels, table, two_lines
from outdraft.report.markup import Child, Markup, join, tag
from outdraft.report.numbers import (
    UNKNOWN,
    drafted_text,
    is_finite,
    rate,
    ratio_cells,
    share,
    times,
)
from outdraft.report.plot import Axis, Mark, Plot, labelled, named_ticks, ticks
from outdraft.report.svg import line, text
from outdraft.report.tables import decision_text
from outdraft.stats.ratios import Ratio
from outdraft.tune.answer import LoadAnswer, answer_of
from outdraft.tune.results import LoadResult, Results
from outdraft.tune.wording import does_text, why_text

_MOST_VALUES = 5  # written beside their points; more would overlap
_LEAD = (
    "Every load has a race, a final and a verdict of its own. What is recommended is one setting "
    "for all of them, or one schedule: that of the best arm at the first load."
)
_SCHEDULE = (
    "The draft length to use, by the number of requests running; off is 0. Only the loads were "
    "measured: between two of them the place of a switch is a guess."
)


def loads_section(results: Results) -> Markup:
    loads = results.loads
    title, names = load_axis(results)
    axis = Axis(title, named_ticks(names))
    figures = panels(
        figure(
            "Best speedup by load",
            "The whiskers are the intervals that the verdicts use. The dashed line is off.",
            speedup_plot(loads, axis),
        ),
        figure(
            "Throughput by load",
            "Tokens per second, all requests together.",
            throughput_plot(loads, axis),
            keys([("best", 0, "best"), ("off", 1, "off")]),
        ),
        _schedule(results) if results.schedule else None,
    )
    is_measured = any(load.measured is not None for load in loads)
    head = ("load", "recommended", "verdict", "best arm", "speedup", "acceptance",
            "tokens/s")  # fmt: skip
    kinds = {0: "short", 1: "short", 2: "label", 3: "name"}
    answer = answer_of(results)
    return join(
        lead(_LEAD if loads else "No load was measured."),
        figures if is_measured else None,
        table(head, [_row(answer.at(load)) for load in loads], "best arm at each load", kinds),
    )


def load_axis(results: Results) -> tuple[str, tuple[str, ...]]:
    """What the loads differ in, and the value of each."""
    loads = results.loads
    if all(load.concurrency is not None for load in loads):
        return "concurrency", tuple(f"{load.concurrency}" for load in loads)
    if all(load.rate is not None for load in loads):
        return "requests/s", tuple(f"{load.rate:g}" for load in loads)
    return "load", tuple(load.name for load in loads)


def _row(answer: LoadAnswer) -> tuple[Child, ...]:
    load = answer.load
    best, off = load.best_arm, load.off
    return (
        load.name,
        two_lines(tag("b", does_text(answer)), why_text(answer)),
        tag("b", decision_text(load.verdict)),
        "none measured" if best is None else best.name,
        _speedup(load.measured),
        UNKNOWN
        if best is None
        else two_lines(share(best.acceptance_rate), drafted_text(best.share_drafted)),
        two_lines(
            UNKNOWN if best is None else rate(best.tokens_per_s),
            UNKNOWN if off is None else f"off {rate(off.tokens_per_s)}",
        ),
    )


def _speedup(ratio: Ratio | None) -> Child:
    if ratio is None:
        return UNKNOWN
    speedup, interval, count = ratio_cells(ratio)
    return two_lines(f"{speedup} {interval}", count)


def speedup_plot(loads: Sequence[LoadResult], axis: Axis) -> Markup:
    """The speedup of the best arm at each load, with its interval."""
    ratios = {at: ratio for at, load in enumerate(loads) if (ratio := load.measured) is not None}
    ends = [end for r in ratios.values() for end in (r.low, r.high, r.estimate) if is_finite(end)]
    low, high = min([0.9, *ends]), max([1.1, *ends])
    room = 0.08 * (high - low)
    plot = Plot((-0.5, len(loads) - 0.5), (max(low - room, 0.0), high + room))
    one = plot.y.at(1.0)
    marks = [
        Mark(at, ratio.estimate, f"{loads[at].name}: {' '.join(ratio_cells(ratio))}")
        for at, ratio in ratios.items()
    ]
    return plot.draw(
        "speedup of the best arm at each load, with intervals",
        axis,
        Axis("speedup of best", labelled(ticks(plot.y.low, plot.y.high))),
        line(plot.left, one, plot.right, one, "even"),
        [_whisker(plot, at, ratio) for at, ratio in ratios.items()],
        plot.curve(marks, "best", 0, r=4.2),
        [_value(plot, mark) for mark in marks] if len(marks) <= _MOST_VALUES else None,
    )


def _whisker(plot: Plot, at: float, ratio: Ratio) -> Markup | None:
    if ratio.low is None or ratio.high is None:
        return None
    x, low, high = plot.x.at(at), plot.y.at(ratio.low), plot.y.at(ratio.high)
    ends = [line(x - 5, y, x + 5, y, "whisker") for y in (low, high)]
    return join(line(x, low, x, high, "whisker"), ends)


def _value(plot: Plot, mark: Mark) -> Markup:
    """To the right above the point, or to the left below it at the end: the curve mostly falls."""
    x, y = plot.at(mark.x, mark.y)
    if x + 48 < plot.right:
        return text(x + 9, y - 6, times(mark.y), "start", "value")
    return text(x - 9, y + 13, times(mark.y), "end", "value")


def throughput_plot(loads: Sequence[LoadResult], axis: Axis) -> Markup:
    """Tokens per second of off and of best, at each load."""
    marks: dict[str, list[Mark]] = {"off": [], "best": []}
    for at, load in enumerate(loads):
        for name, arm in (("off", load.off), ("best", load.best_arm)):
            if arm is not None and is_finite(speed := arm.tokens_per_s):
                title = f"{name} at {load.name}: {speed:.0f} tokens/s"
                marks[name].append(Mark(at, speed, title))
    top = 1.08 * max([1.0, *(mark.y for each in marks.values() for mark in each)])
    plot = Plot((-0.5, len(loads) - 0.5), (0.0, top))
    return plot.draw(
        "tokens per second of best and off at each load",
        axis,
        Axis("tokens/s", labelled(ticks(0.0, top))),
        plot.curve(marks["off"], "off", 1, r=4.2),
        plot.curve(marks["best"], "best", 0, r=4.2),
    )


def _schedule(results: Results) -> Markup:
    rows = schedule_rows(results)
    fault = answer_of(results).schedule_fault
    note = f"Not used: {fault}." if fault else _SCHEDULE
    steps = [(running, _draft_length(k)) for running, k in rows]
    head = ("requests running", "draft length")
    return figure(
        "Schedule",
        note,
        schedule_plot(rows),
        numbers_of(table(head, steps, "the schedule", {0: "short"})),
        table(
            ("measured at", "speedup", "interval", "pairs"),
            [
                (each.load, *ratio_cells(each.measured))
                if each.measured is not None
                else (each.load, "failed", each.reason, UNKNOWN)
                for each in results.scheduled
            ],
            "the measured speedup of the schedule over off",
            {0: "short"},
        )
        if results.scheduled
        else None,
    )


def schedule_rows(results: Results) -> tuple[tuple[str, int], ...]:
    """(requests running, k). The last range is open: its end is only a bound."""
    last = len(results.schedule) - 1
    return tuple(
        (f"{start}+" if at == last else f"{start}" if start == end else f"{start}–{end}", k)
        for at, (start, end, k) in enumerate(results.schedule)
    )


def _draft_length(k: int) -> str:
    return f"k={k}" if k else "off"


def schedule_plot(rows: Sequence[tuple[str, int]]) -> Markup:
    """A column for each range of running requests, as high as its draft length."""
    most = max([k for _, k in rows] + [1])
    plot = Plot((0.0, float(len(rows))), (0.0, 1.12 * most), right=6)
    whole = [each for each in ticks(0.0, float(most)) if each == int(each)]
    columns = []
    for at, (running, k) in enumerate(rows):
        left, right, top = plot.x.at(at) + 5, plot.x.at(at + 1) - 5, plot.y.at(k)
        shown = _draft_length(k)
        title = tag("title", f"{running} requests running: {shown}")
        box = {"x": left, "y": top, "width": right - left, "height": plot.bottom - top}
        columns.append(tag("rect", title, **box, class_="column"))
        columns.append(text((left + right) / 2, top - 6, shown, "middle", "value"))
    return plot.draw(
        "draft length by requests running",
        Axis("requests running", [(at + 0.5, running) for at, (running, _) in enumerate(rows)]),
        Axis("draft length", labelled(whole)),
        columns,
    )
