"""The page's charts over time: benefit with its interval, acceptance, pace, alarms."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from outdraft.report.layout import figure, keys, nothing, numbers_of, panels, table
from outdraft.report.markup import Child, Markup, tag
from outdraft.report.numbers import UNKNOWN, milliseconds, share, times
from outdraft.report.plot import Axis, Mark, Plot, labelled, ticks
from outdraft.report.svg import Point as Pixel
from outdraft.report.svg import abbreviated, line, polygon, series_class, text
from outdraft.watch.findings import FLEET
from outdraft.watch.trail import Point, Span, Trail
from outdraft.watch.words import alarm_title, clock

_MOST_SERIES = 5  # replicas beside all of them together; the table has the others
_MOST_ROWS = 8  # of the alarms' time line
_MOST_NUMBERS = 24  # rows of the tables below the charts
_ROW = 24.0  # pixels

T = TypeVar("T")
Value = Callable[[Point], float | None]
Curve = tuple[str, list[tuple[float, float | None]]]


def charts(trail: Trail, names: Sequence[str]) -> Markup:
    """`names`: replicas to be drawn, the most interesting first; all together are always there."""
    if len(trail.points) < 2:
        return nothing("Charts begin with the second look.")
    drawn = (FLEET, *names[:_MOST_SERIES]) if len(names) > 1 else (FLEET,)
    return panels(
        _benefit_chart(trail),
        _chart(trail, drawn, "Acceptance rate", "Accepted over proposed draft tokens.",
               "rate", lambda point: point.acceptance_rate, share, top=1.0),
        _chart(trail, drawn, "Time per token", "Of a text, after its first token.",
               "ms", lambda point: None if point.seconds_per_token is None
               else 1000 * point.seconds_per_token, _shown_ms),
        _alarms_chart(trail, names),
        style="--panel:420px",
    )  # fmt: skip


def _benefit_chart(trail: Trail) -> Markup:
    """Of all replicas together, with a line where speculation neither gains nor loses."""
    known = [(at, point) for at, point in trail.of(FLEET) if point.benefit is not None]
    title, note = "Net benefit", "Above 1 it pays. The band is the 95 % interval."
    if not known:
        return figure(title, note, nothing("No net benefit is known yet."))
    values = [each for _, p in known for each in (p.benefit, p.low, p.high) if each is not None]
    plot = Plot(_range(trail), _padded((1.0, *values)))
    bands = [_band(plot, stretch) for stretch in _stretches(known)]
    even = line(plot.left, plot.y.at(1.0), plot.right, plot.y.at(1.0), "even")
    curve: Curve = (FLEET, [(at, point.benefit) for at, point in trail.of(FLEET)])
    picture = plot.draw(
        f"net benefit over time, now {times(known[-1][1].benefit)}",
        _time_axis(trail),
        Axis("speedup", labelled(ticks(plot.y.low, plot.y.high, 5))),
        bands, even, _curve(plot, curve, 0, times),
    )  # fmt: skip
    rows = [
        (clock(at), times(p.benefit),
         UNKNOWN if p.low is None or p.high is None else f"[{p.low:.2f}, {p.high:.2f}]")
        for at, p in _thinned(known)
    ]  # fmt: skip
    numbers = table(("time", "net benefit", "interval"), rows, "net benefit over time",
                    {0: "short"})  # fmt: skip
    return figure(title, note, picture, numbers_of(numbers))


def _stretches(known: Sequence[tuple[float, Point]]) -> Iterator[list[tuple[float, float, float]]]:
    """(time, low, high) of neighbours that all have an interval."""
    stretch: list[tuple[float, float, float]] = []
    for at, point in known:
        if point.low is not None and point.high is not None:
            stretch.append((at, point.low, point.high))
        elif stretch:
            yield stretch
            stretch = []
    if stretch:
        yield stretch


def _band(plot: Plot, stretch: Sequence[tuple[float, float, float]]) -> Markup:
    above: list[Pixel] = [plot.at(at, high) for at, _, high in stretch]
    below: list[Pixel] = [plot.at(at, low) for at, low, _ in reversed(stretch)]
    return polygon([*above, *below], "band s1")


def _chart(
    trail: Trail, names: Sequence[str], title: str, note: str, unit: str, value: Value,
    shown: Callable[[float | None], str], top: float | None = None,
) -> Markup:  # fmt: skip
    curves = [(name, [(at, value(point)) for at, point in trail.of(name)]) for name in names]
    curves = [(name, marks) for name, marks in curves if any(y is not None for _, y in marks)]
    if not curves:
        return figure(title, note, nothing("Nothing is known yet."))
    values = [y for _, marks in curves for _, y in marks if y is not None]
    plot = Plot(_range(trail), (0.0, top if top is not None else 1.15 * max(values) or 1.0))
    drawn = [_curve(plot, curve, number, shown) for number, curve in enumerate(curves)]
    picture = plot.draw(
        f"{title.lower()} over time, now {shown(values[-1])}",
        _time_axis(trail),
        Axis(unit, labelled(ticks(plot.y.low, plot.y.high, 5))),
        drawn,
    )
    entries = [
        (series_class(number), number, abbreviated(name or "all", 34))
        for number, (name, _) in enumerate(curves)
    ]
    whole = _thinned(trail.points)
    head = ("time", *(name or "all" for name, _ in curves))
    rows = [
        (clock(at), *(shown(value(points[name])) if name in points else UNKNOWN
                       for name, _ in curves))
        for at, points in whole
    ]  # fmt: skip
    numbers = table(head, rows, f"{title.lower()} over time", {0: "short"})
    below = keys(entries) if len(curves) > 1 else None
    return figure(title, note, picture, below, numbers_of(numbers))


def _curve(
    plot: Plot, curve: Curve, number: int, shown: Callable[[float | None], str]
) -> list[Child]:
    """Broken where nothing is known; a marker at each end."""
    name, marks = curve
    class_ = f"{series_class(number)}{' whole' if name == FLEET else ''}"
    stretches: list[list[Mark]] = [[]]
    for at, y in marks:
        if y is None:
            stretches.append([])
        else:
            stretches[-1].append(Mark(at, y, f"{name or 'all'}, {clock(at)}: {shown(y)}"))
    drawn: list[Child] = []
    for stretch in filter(None, stretches):
        path, *dots = plot.curve(stretch, class_, number, 3.0)
        drawn += [path, dots[0], dots[-1]]
    return drawn


def _alarms_chart(trail: Trail, names: Sequence[str]) -> Markup:
    spans = trail.spans((FLEET, *names))
    title, note = "Alarms", "From when they were raised to when they ended."
    if not spans:
        return figure(title, note, nothing("No alarm in this time."))
    rows: dict[tuple[str, str], list[Span]] = {}
    for span in spans:
        rows.setdefault((span.replica, span.kind), []).append(span)
    shown = list(rows.items())[-_MOST_ROWS:]
    plot = Plot(_range(trail), (0.0, 1.0), height=_ROW * len(shown) + 64)
    marks: list[Child] = []
    for number, ((replica, kind), stretches) in enumerate(shown):
        top = 26 + _ROW * number
        words = f"{alarm_title(kind)}, {replica or 'all'}"
        marks.append(text(plot.left, top + 9, abbreviated(words, 46), class_="label"))
        for span in stretches:
            start = plot.x.at(span.start)
            width = max(plot.x.at(span.end) - start, 3.0)
            about = tag("title", f"{words}: {clock(span.start)} to {clock(span.end)}")
            marks.append(tag("rect", about, x=start, y=top + 13, width=width, height=6.0,
                             class_="column"))  # fmt: skip
    picture = plot.draw("alarms over time", _time_axis(trail), Axis("", []), marks)
    head = ("alarm", "replica", "from", "to")
    told = [
        (alarm_title(span.kind), span.replica or "all", clock(span.start), clock(span.end))
        for span in reversed(spans[-_MOST_NUMBERS:])
    ]
    kinds = {1: "name", 2: "short", 3: "short"}
    return figure(title, note, picture, numbers_of(table(head, told, "alarms over time", kinds)))


def _range(trail: Trail) -> tuple[float, float]:
    return trail.points[0][0], trail.points[-1][0]


def _time_axis(trail: Trail) -> Axis:
    """A few round moments of the local clock."""
    start, end = _range(trail)
    steps = (1, 5, 10, 30, 60, 300, 600, 1800, 3600, 7200, 14_400, 28_800, 86_400)
    step = next((each for each in steps if (end - start) / each <= 5), 7 * 86_400)
    offset = time.localtime(start).tm_gmtoff
    first = -(-(start + offset) // step) * step - offset
    is_short = step < 60
    moments = [first + step * number for number in range(int((end - first) // step) + 1)]
    words = "%H:%M:%S" if is_short else "%H:%M" if step < 86_400 else "%d %b"
    return Axis("time", [(at, time.strftime(words, time.localtime(at))) for at in moments])


def _padded(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = 0.1 * (high - low) or 0.1
    return max(low - room, 0.0), high + room


def _thinned(values: Sequence[T]) -> list[T]:
    """The newest first, evenly left out where there are many."""
    step = -(-len(values) // _MOST_NUMBERS)
    return list(values[::-1][::step])


def _shown_ms(value: float | None) -> str:
    return UNKNOWN if value is None else milliseconds(value)
