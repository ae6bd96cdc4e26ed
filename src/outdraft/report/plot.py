"""Plots with two axes: scales, ticks, grid lines and curves."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from outdraft.report.markup import Child, Markup
from outdraft.report.svg import Point, abbreviated, drawing, line, marker, path, text

# Pixels. A phone shows this width without shrinking it; a wide screen shows three plots in a row.
WIDTH, HEIGHT = 340.0, 232.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 38.0, 14.0, 26.0, 38.0
_MOST_NAMES = 8  # on an axis


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps `low` to pixel `start` and `high` to `end`; values outside are drawn at the edge."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        span = self.high - self.low
        share = (value - self.low) / span if span else 0.5
        return self.start + min(max(share, 0.0), 1.0) * (self.end - self.start)


def ticks(low: float, high: float, at_most: int = 6) -> list[float]:
    """Round values within the range: multiples of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    raw = (high - low) / max(at_most - 1, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    for factor in (1, 2, 5, 10, 20):
        step = factor * power
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first + 1 <= at_most:
            break
    return [each * step for each in range(first, last + 1)]


def labelled(values: Sequence[float]) -> list[tuple[float, str]]:
    """Values with their labels, in as many decimals as all of them need."""
    step = min((b - a for a, b in pairwise(values)), default=1.0) or 1.0
    places = next(
        (n for n in range(7) if all(abs(round(each, n) - each) < step / 1000 for each in values)), 7
    )
    return [(each, f"{each:,.{places}f}") for each in values]


def named_ticks(names: Sequence[str]) -> list[tuple[float, str]]:
    """At 0, 1, 2, …; some are left out where they would overlap."""
    step = max(1, -(-len(names) // _MOST_NAMES))
    return [(float(at), abbreviated(name, 9)) for at, name in enumerate(names) if at % step == 0]


class Axis(NamedTuple):
    title: str
    ticks: Sequence[tuple[float, str]]


class Mark(NamedTuple):
    """One point of a curve, in values."""

    x: float
    y: float
    title: str


class Plot:
    """The drawing area between two axes; `x` and `y` are the ranges of values."""

    def __init__(
        self, x: Point, y: Point, *, height: float = HEIGHT, right: float = _RIGHT
    ) -> None:
        self.height = height
        self.left, self.right, self.bottom = _LEFT, WIDTH - right, height - _BOTTOM
        self.x = Scale(*x, self.left, self.right)
        self.y = Scale(*y, self.bottom, _TOP)

    def at(self, x: float, y: float) -> Point:
        return self.x.at(x), self.y.at(y)

    def curve(self, marks: Sequence[Mark], class_: str, shape: int, r: float = 3.6) -> list[Markup]:
        """A line through the marks, in order, and a marker for each."""
        if not marks:
            return []
        dots = [marker(shape, *self.at(m.x, m.y), f"dot {class_}", m.title, r) for m in marks]
        return [path([self.at(m.x, m.y) for m in marks], f"curve {class_}"), *dots]

    def draw(self, label: str, x: Axis, y: Axis, *children: Child) -> Markup:
        """The axes with horizontal grid lines, then `children` over them."""
        grid = []
        for value, name in y.ticks:
            at = self.y.at(value)
            grid.append(line(self.left, at, self.right, at, "grid"))
            grid.append(text(self.left - 7, at + 3.5, name, "end", "tick"))
        for value, name in x.ticks:
            at = self.x.at(value)
            grid.append(line(at, self.bottom, at, self.bottom + 4, "axis"))
            grid.append(text(at, self.bottom + 16, name, "middle", "tick"))
        grid.append(line(self.left, self.bottom, self.right, self.bottom, "axis"))
        grid.append(text(2, 11, y.title, "start", "title"))
        grid.append(text(self.right, self.height - 3, x.title, "end", "title"))
        return drawing(WIDTH, self.height, label, grid, *children)
