"""The frame of a plot: where it lies, its axes and its grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outdraft.report.markup import Markup, join
from outdraft.report.svg.marks import line, text
from outdraft.report.svg.scale import Scale

# One panel is as wide as a phone shows without shrinking it; wide screens set three side by side.
WIDTH, HEIGHT = 340.0, 232.0

Tick = tuple[float, str]


@dataclass(frozen=True, slots=True)
class Frame:
    width: float
    height: float
    x: Scale
    y: Scale

    @property
    def left(self) -> float:
        return self.x.start

    @property
    def right(self) -> float:
        return self.x.end

    @property
    def top(self) -> float:
        return self.y.end

    @property
    def bottom(self) -> float:
        return self.y.start


def make_frame(
    x: tuple[float, float],
    y: tuple[float, float],
    *,
    width: float = WIDTH,
    height: float = HEIGHT,
    left: float = 38.0,
    right: float = 14.0,
    top: float = 26.0,
    bottom: float = 38.0,
) -> Frame:
    """`x` and `y`: the ranges of values."""
    return Frame(
        width,
        height,
        Scale(*x, left, width - right),
        Scale(*y, height - bottom, top),
    )


def axes(
    frame: Frame,
    x_ticks: Sequence[Tick],
    y_ticks: Sequence[Tick],
    x_title: str,
    y_title: str,
) -> Markup:
    """Horizontal grid lines alone; the vertical's title stands level, above it."""
    parts = []
    for value, label in y_ticks:
        y = frame.y.at(value)
        parts.append(line(frame.left, y, frame.right, y, "grid"))
        parts.append(text(frame.left - 7, y + 3.5, label, "end", "tick"))
    for value, label in x_ticks:
        x = frame.x.at(value)
        parts.append(line(x, frame.bottom, x, frame.bottom + 4, "axis"))
        parts.append(text(x, frame.bottom + 16, label, "middle", "tick"))
    parts.append(line(frame.left, frame.bottom, frame.right, frame.bottom, "axis"))
    parts.append(text(2, 11, y_title, "start", "title"))
    parts.append(text(frame.right, frame.height - 3, x_title, "end", "title"))
    return join(parts)
