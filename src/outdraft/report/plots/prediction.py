"""Predicted against measured speedup, with the band in which a prediction counts as right."""

from __future__ import annotations

from collections.abc import Sequence

from outdraft.report.figures.prediction import BAND, Point
from outdraft.report.markup import Markup
from outdraft.report.numbers import count_of, percent, times
from outdraft.report.svg.frame import axes, make_frame
from outdraft.report.svg.marks import drawing, marker, path, polygon, series_class, text
from outdraft.report.svg.scale import labelled, ticks


def prediction_plot(points: Sequence[Point], loads: Sequence[str], label: str) -> Markup:
    """Each load has a shape and a colour of its own."""
    values = [value for point in points for value in (point.predicted, point.measured)]
    low, high = min([0.9, *values]), max([1.1, *values])
    room = 0.06 * (high - low)
    ends = (max(low - room, 0.0), high + room)
    frame = make_frame(ends, ends, height=316.0)
    marks = labelled(ticks(*ends, 6))
    # The band, cut off at the frame: from low to high along its upper edge, back along the lower.
    bottom, top = ends
    up, down = 1 + BAND, 1 - BAND
    band = [
        (bottom, min(bottom * up, top)),
        (top / up, top),
        (top, top),
        (top, top * down),
        (min(bottom / down, top), bottom),
        (bottom, bottom),
    ]
    placed = [(frame.x.at(x), frame.y.at(y)) for x, y in band]
    dots = [
        marker(
            loads.index(point.load),
            frame.x.at(point.measured),
            frame.y.at(point.predicted),
            f"dot open {series_class(loads.index(point.load))}",
            f"{point.arm} at {point.load}: predicted {times(point.predicted)}, measured "
            f"{times(point.measured)} ({count_of(point.num_pairs)}), off by "
            f"{percent(abs(point.error))}",
            r=4.2,
        )
        for point in points
    ]
    return drawing(
        frame.width,
        frame.height,
        label,
        axes(frame, marks, marks, "measured speedup", "predicted speedup"),
        polygon(placed, "band"),
        path([(frame.x.at(end), frame.y.at(end)) for end in ends], "even"),
        text(frame.right - 4, frame.bottom - 8, "band: within 15 %", "end", "quiet"),
        dots,
    )
