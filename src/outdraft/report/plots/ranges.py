"""Dot and range: P10 to P90 as a bar, P50 as a dot, a row for each category."""

from __future__ import annotations

from collections.abc import Sequence

from outdraft.report.figures.acceptance import Range
from outdraft.report.markup import Markup, join
from outdraft.report.numbers import count_of, share
from outdraft.report.svg.marks import drawing, line, marker, shortened, text
from outdraft.report.svg.scale import Scale

_WIDTH, _LEFT, _RIGHT, _ROW, _TOP = 340.0, 104.0, 14.0, 23.0, 8.0


def range_plot(ranges: Sequence[Range], label: str) -> Markup:
    bottom = _TOP + _ROW * max(len(ranges), 1)
    x = Scale(0.0, 1.0, _LEFT, _WIDTH - _RIGHT)
    grid = [
        join(
            line(x.at(value), _TOP, x.at(value), bottom, "grid"),
            text(x.at(value), bottom + 15, f"{value:g}", "middle", "tick"),
        )
        for value in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    rows = [_row(each, _TOP + _ROW * (at + 0.5), x) for at, each in enumerate(ranges)]
    title = text(_WIDTH - _RIGHT, bottom + 31, "acceptance rate", "end", "title")
    return drawing(_WIDTH, bottom + 36, label, grid, rows, title)


def _row(found: Range, y: float, x: Scale) -> Markup:
    name = text(_LEFT - 10, y + 4, shortened(found.category, 14), "end", "label")
    if found.p50 is None:
        return join(name, text(_LEFT + 4, y + 4, "too few requests", "start", "quiet"))
    told = (
        f"{found.category}: P10 {share(found.p10)}, P50 {share(found.p50)}, P90 {share(found.p90)}"
        + ("" if found.count is None else f", {count_of(found.count)}")
    )
    low = found.p50 if found.p10 is None else found.p10
    high = found.p50 if found.p90 is None else found.p90
    ends = [
        line(x.at(end), y - 4, x.at(end), y + 4, "range")
        for end in (found.p10, found.p90)
        if end is not None
    ]
    return join(
        name,
        line(x.at(low), y, x.at(high), y, "range"),
        ends,
        marker(0, x.at(found.p50), y, "dot s1", told, r=4.6),
    )
