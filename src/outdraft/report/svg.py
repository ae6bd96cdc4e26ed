"""SVG elements. Colours are classes that the theme sets; every series has its own shape too."""

from collections.abc import Iterable

from outdraft.report.markup import Child, Markup, number, tag

NUM_SERIES = 6  # colours and shapes; a seventh series looks like the first

Point = tuple[float, float]

# Marker corners in radii around the centre: triangle, diamond, triangle upside down, hourglass.
_CORNERS: dict[int, tuple[Point, ...]] = {
    2: ((0, -1.25), (1.15, 0.85), (-1.15, 0.85)),
    3: ((0, -1.3), (1.2, 0), (0, 1.3), (-1.2, 0)),
    4: ((0, 1.25), (1.15, -0.85), (-1.15, -0.85)),
    5: ((-1, -1.1), (1, -1.1), (-1, 1.1), (1, 1.1)),
}


def series_class(index: int) -> str:
    return f"s{index % NUM_SERIES + 1}"


def path(points: Iterable[Point], class_: str) -> Markup:
    steps = " L".join(f"{number(float(x))} {number(float(y))}" for x, y in points)
    return tag("path", d=f"M{steps}", class_=class_)


def polygon(points: Iterable[Point], class_: str, title: Child = None) -> Markup:
    corners = " ".join(f"{number(float(x))},{number(float(y))}" for x, y in points)
    return tag("polygon", title, points=corners, class_=class_)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)


def text(x: float, y: float, words: Child, anchor: str = "start", class_: str = "") -> Markup:
    return tag("text", words, x=x, y=y, text_anchor=anchor, class_=class_ or None)


def marker(index: int, x: float, y: float, class_: str, title: str = "", r: float = 3.6) -> Markup:
    """The shape of series `index`; a pointer over it shows `title`."""
    tooltip = tag("title", title) if title else None
    shape = index % NUM_SERIES
    if shape == 0:
        return tag("circle", tooltip, cx=x, cy=y, r=r, class_=class_)
    if shape == 1:
        side = 1.75 * r
        at = {"x": x - side / 2, "y": y - side / 2}
        return tag("rect", tooltip, **at, width=side, height=side, class_=class_)
    return polygon([(x + r * dx, y + r * dy) for dx, dy in _CORNERS[shape]], class_, tooltip)


def abbreviated(words: str, at_most: int) -> str:
    return words if len(words) <= at_most else words[: at_most - 1].rstrip() + "…"


def drawing(width: float, height: float, label: str, *children: Child) -> Markup:
    """A whole picture; screen readers read `label` in its place."""
    size = f"0 0 {number(width)} {number(height)}"
    return tag("svg", *children, viewBox=size, role="img", aria_label=label, class_="plot")
