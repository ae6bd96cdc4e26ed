"""The best arm at each load, where off starts to win, and the schedule that follows from it."""

from collections.abc import Sequence

from outdraft.decide.verdict import DONT_SHIP, SHIP, SHIP_FOR
from outdraft.report.layout import figure, keys, lead, numbers_of, panels, table
from outdraft.report.markup import Markup, join, tag
from outdraft.report.numbers import UNKNOWN, is_finite, rate, ratio_cells, share, times
from outdraft.report.plot import Axis, Mark, Plot, labelled, named_ticks, ticks
from outdraft.report.svg import line, text
from outdraft.report.tables import decision_text
from outdraft.stats.ratios import Ratio
from outdraft.tune.results import LoadResult, Results

_MOST_VALUES = 5  # written beside their points; more would overlap
_WINS, _LOSES, _UNCLEAR, _UNMEASURED = "wins", "loses", "unclear", "unmeasured"


def loads_section(results: Results) -> Markup:
    loads = results.loads
    title, names = load_axis(results)
    axis = Axis(title, named_ticks(names))
    figures = panels(
        figure(
            "Best speedup by load",
            "The whiskers are the intervals that the verdicts use.",
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
    head = ("load", "best arm", "speedup", "interval", "pairs", "acceptance", "tokens/s, off",
            "tokens/s, best", "verdict")  # fmt: skip
    kinds = {0: "short", 1: "name", 8: "short"}
    return join(
        lead(crossover(results)),
        figures if is_measured else None,
        table(head, [_row(load) for load in loads], "best arm at each load", kinds),
    )


def load_axis(results: Results) -> tuple[str, tuple[str, ...]]:
    """What the loads differ in, and the value of each."""
    loads = results.loads
    if all(load.concurrency is not None for load in loads):
        return "concurrency", tuple(f"{load.concurrency}" for load in loads)
    if all(load.rate is not None for load in loads):
        return "requests/s", tuple(f"{load.rate:g}" for load in loads)
    return "load", tuple(load.name for load in loads)


def crossover(results: Results) -> str:
    """In words, by the verdicts: at which loads speculation wins, and from where off wins."""
    loads = sorted(results.loads, key=lambda load: load.concurrency or load.rate or 0.0)
    if not loads:
        return "No load was measured."
    outcomes = [_outcome(load) for load in loads]
    wins, losses, unclear, unmeasured = (
        [load.name for load, each in zip(loads, outcomes, strict=True) if each == outcome]
        for outcome in (_WINS, _LOSES, _UNCLEAR, _UNMEASURED)
    )
    decided = [each for each in outcomes if each in (_WINS, _LOSES)]
    sentences = []
    if len(wins) == len(loads):
        where = "at the load measured" if len(wins) == 1 else "at every load measured"
        sentences.append(f"Speculation wins {where}: no crossover was found.")
    elif wins and losses and decided == [_WINS] * len(wins) + [_LOSES] * len(losses):
        sentences.append(
            f"Speculation wins up to {wins[-1]} and off wins from {losses[0]} on: the crossover "
            "lies between the two."
        )
    elif wins:
        off = f"; off wins at {', '.join(losses)}" if losses else ""
        sentences.append(f"Speculation wins at {', '.join(wins)}{off}.")
    elif losses:
        sentences.append(f"Off wins at {', '.join(losses)}: at no load does speculation pay.")
    if unclear:
        sentences.append(f"Not clear at {', '.join(unclear)}.")
    if unmeasured:
        sentences.append(f"Nothing could be measured at {', '.join(unmeasured)}.")
    return " ".join(sentences)


def _outcome(load: LoadResult) -> str:
    if load.verdict is None:  # the time was over before there was one
        return _UNMEASURED if load.measured is None else _UNCLEAR
    outcomes = {SHIP: _WINS, SHIP_FOR: _WINS, DONT_SHIP: _LOSES}
    return outcomes.get(load.verdict.decision, _UNCLEAR)


def _row(load: LoadResult) -> tuple[str, ...]:
    best, off = load.best_arm, load.off
    return (
        load.name,
        "none measured" if best is None else best.name,
        *ratio_cells(load.measured),
        UNKNOWN if best is None else share(best.acceptance_rate),
        UNKNOWN if off is None else rate(off.tokens_per_s),
        UNKNOWN if best is None else rate(best.tokens_per_s),
        tag("b", decision_text(load.verdict)),
    )


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
        text(plot.left + 3, one - 5, "as fast as off", "start", "quiet"),
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
    steps = [(running, _draft_length(k)) for running, k in rows]
    head = ("requests running", "draft length")
    return figure(
        "Schedule",
        "The draft length to use, by the number of requests running; off is 0.",
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
