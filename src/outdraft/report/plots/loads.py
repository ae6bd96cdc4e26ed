"""The best speedup at each load, with intervals; and the schedule by requests running."""

from __future__ import annotations

from collections.abc import Sequence

from outdraft.report.figures.loads import LoadRow
from outdraft.report.markup import Markup, join, tag
from outdraft.report.numbers import count_of, interval, is_finite, times
from outdraft.report.svg.frame import Frame, axes, make_frame
from outdraft.report.svg.marks import drawing, line, marker, path, shortened, text
from outdraft.report.svg.scale import labelled, ticks
from outdraft.stats import Ratio

Axis = tuple[str, Sequence[str]]  # what the loads differ in, and each one's value
_MOST_VALUES = 5  # written beside their points; more would run into each other


def load_plot(rows: Sequence[LoadRow], axis: Axis, label: str) -> Markup:
    known = [each.ratio for each in rows if each.ratio is not None]
    values = [
        value
        for ratio in known
        for value in (ratio.low, ratio.high, ratio.estimate)
        if is_finite(value)
    ]
    low, high = min([0.9, *values]), max([1.1, *values])
    room = 0.08 * (high - low)
    frame = make_frame((-0.5, len(rows) - 0.5), (max(low - room, 0.0), high + room))
    points = [(at, row.ratio) for at, row in enumerate(rows) if row.ratio is not None]
    curve = [(frame.x.at(at), frame.y.at(ratio.estimate)) for at, ratio in points]
    one = frame.y.at(1.0)
    return drawing(
        frame.width,
        frame.height,
        label,
        axes(
            frame,
            _ticks(axis[1]),
            labelled(ticks(frame.y.low, frame.y.high, 6)),
            axis[0],
            "speedup of best",
        ),
        line(frame.left, one, frame.right, one, "even"),
        text(frame.left + 3, one - 5, "as fast as off", "start", "quiet"),
        path(curve, "curve best") if len(curve) > 1 else None,
        [_point(frame, at, rows[at], ratio, len(points) <= _MOST_VALUES) for at, ratio in points],
    )


def _point(frame: Frame, at: int, row: LoadRow, ratio: Ratio, valued: bool) -> Markup:
    x, y = frame.x.at(at), frame.y.at(ratio.estimate)
    whisker = None
    if ratio.low is not None and ratio.high is not None:
        low, high = frame.y.at(ratio.low), frame.y.at(ratio.high)
        whisker = join(
            line(x, low, x, high, "whisker"),
            line(x - 5, low, x + 5, low, "whisker"),
            line(x - 5, high, x + 5, high, "whisker"),
        )
    told = f"{row.load.name}: {times(ratio.estimate)} {interval(ratio)} {count_of(ratio.num_pairs)}"
    # The curve mostly falls, so there is room to the right above it, and at its end to the left
    # below it.
    on_right = x + 48 < frame.right
    at_x, at_y, anchor = (x + 9, y - 6, "start") if on_right else (x - 9, y + 13, "end")
    return join(
        whisker,
        marker(0, x, y, "dot best", told, r=4.2),
        text(at_x, at_y, times(ratio.estimate), anchor, "value") if valued else None,
    )


def throughput_plot(rows: Sequence[LoadRow], axis: Axis, label: str) -> Markup:
    """Tokens a second of off and of best, at each load."""
    series = [
        ("off", 1, [None if row.off is None else row.off.tokens_per_s for row in rows]),
        ("best", 0, [None if row.best is None else row.best.tokens_per_s for row in rows]),
    ]
    known = [value for _, _, values in series for value in values if is_finite(value)]
    top = 1.08 * max([1.0, *known])
    frame = make_frame((-0.5, len(rows) - 0.5), (0.0, top))
    drawn = []
    for class_, shape, values in series:
        placed = [
            (frame.x.at(at), frame.y.at(value), rows[at].load.name, value)
            for at, value in enumerate(values)
            if is_finite(value)
        ]
        if len(placed) > 1:
            drawn.append(path([(x, y) for x, y, _, _ in placed], f"curve {class_}"))
        drawn += [
            marker(shape, x, y, f"dot {class_}", f"{class_} at {name}: {value:.0f} tokens/s", r=4.2)
            for x, y, name, value in placed
        ]
    return drawing(
        frame.width,
        frame.height,
        label,
        axes(frame, _ticks(axis[1]), labelled(ticks(0.0, top, 6)), axis[0], "tokens/s"),
        drawn,
    )


def _ticks(names: Sequence[str]) -> list[tuple[float, str]]:
    """Not so many that they run into each other."""
    step = max(1, -(-len(names) // 8))
    return [(float(at), shortened(name, 9)) for at, name in enumerate(names) if at % step == 0]


def schedule_plot(rows: Sequence[tuple[str, int]], label: str) -> Markup:
    """A column for each range of requests running, as high as its draft length."""
    most = max([k for _, k in rows] + [1])
    frame = make_frame((0.0, float(len(rows))), (0.0, 1.12 * most), right=6)
    whole = [each for each in ticks(0.0, float(most), 6) if each == int(each)]
    columns = []
    for at, (running, k) in enumerate(rows):
        left, right = frame.x.at(at) + 5, frame.x.at(at + 1) - 5
        y = frame.y.at(k)
        shown = f"k={k}" if k else "off"
        told = tag("title", f"{running} requests running: {shown}")
        columns.append(
            join(
                tag("rect", told, x=left, y=y, width=right - left, height=frame.bottom - y,
                    class_="column"),
                text((left + right) / 2, y - 6, shown, "middle", "value"),
            )
        )  # fmt: skip
    names = [(at + 0.5, running) for at, (running, _) in enumerate(rows)]
    return drawing(
        frame.width,
        frame.height,
        label,
        axes(frame, names, labelled(whole), "requests running", "draft length"),
        columns,
    )
