"""Points, lines, texts. A series has a colour, a shape and a dash: never a colour alone."""

from __future__ import annotations

from collections.abc import Sequence

from outdraft.report.markup import Child, Markup, number, tag

NUM_SERIES = 6  # colours; the shapes go on

Point = tuple[float, float]


def series_class(index: int) -> str:
    return f"s{index % NUM_SERIES + 1}"


def path(points: Sequence[Point], class_: str) -> Markup:
    steps = " L".join(f"{number(float(x))} {number(float(y))}" for x, y in points)
    return tag("path", d=f"M{steps}", class_=class_)


def polygon(points: Sequence[Point], class_: str) -> Markup:
    corners = " ".join(f"{number(float(x))},{number(float(y))}" for x, y in points)
    return tag("polygon", points=corners, class_=class_)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def text(x: float, y: float, words: Child, anchor: str = "start", class_: str = "") -> Markup:
    return tag("text", words, x=x, y=y, text_anchor=anchor, class_=class_ or None)


def marker(index: int, x: float, y: float, class_: str, title: str = "", r: float = 3.6) -> Markup:
    """The series' own shape; `title` is what a pointer over it shows."""
    told = tag("title", title) if title else None
    shape = index % 6
    if shape == 0:
        return tag("circle", told, cx=x, cy=y, r=r, class_=class_)
    if shape == 1:
        side = 1.75 * r
        return tag("rect", told, x=x - side / 2, y=y - side / 2, width=side, height=side,
                   class_=class_)  # fmt: skip
    corners = _CORNERS[shape]
    points = " ".join(f"{number(x + r * dx)},{number(y + r * dy)}" for dx, dy in corners)
    return tag("polygon", told, points=points, class_=class_)


# In radii around the middle: triangle, diamond, triangle on its head, hour-glass.
_CORNERS: dict[int, tuple[Point, ...]] = {
    2: ((0, -1.25), (1.15, 0.85), (-1.15, 0.85)),
    3: ((0, -1.3), (1.2, 0), (0, 1.3), (-1.2, 0)),
    4: ((0, 1.25), (1.15, -0.85), (-1.15, -0.85)),
    5: ((-1, -1.1), (1, -1.1), (-1, 1.1), (1, 1.1)),
}


def shortened(words: str, at_most: int) -> str:
    return words if len(words) <= at_most else words[: at_most - 1].rstrip() + "…"


def drawing(width: float, height: float, label: str, *children: Child) -> Markup:
    """A whole picture. `label` is read out in its place; the numbers are in a table below it."""
    return tag("svg", *children, viewBox=f"0 0 {number(width)} {number(height)}", role="img",
               aria_label=label, class_="plot")  # fmt: skip
