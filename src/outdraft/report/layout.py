"""The pieces that sections are made of: figures, tables, legends, folded parts."""

from collections.abc import Mapping, Sequence

from outdraft.report.markup import Child, Markup, tag
from outdraft.report.numbers import interval, times
from outdraft.report.svg import line, marker, series_class
from outdraft.stats.ratios import Ratio


def lead(*words: Child) -> Markup:
    """The paragraph below a section's title."""
    return tag("p", *words, class_="lead")


def nothing(words: str) -> Markup:
    """What stands in the place of results that there are none of."""
    return tag("p", words, class_="nothing")


def figure(title: Child, note: Child, picture: Child, *below: Child) -> Markup:
    caption = tag("figcaption", tag("h3", title), tag("p", note) if note else None)
    return tag("figure", caption, picture, *below)


def panels(*figures: Child, style: str | None = None) -> Markup:
    """Figures side by side where there is room."""
    return tag("div", *figures, class_="panels", style=style)


def table(
    head: Sequence[Child],
    rows: Sequence[Sequence[Child]],
    label: str,
    kinds: Mapping[int, str] | None = None,
    class_: str | None = None,
) -> Markup:
    """A table whose first column names the row.

    `kinds` are the columns that do not hold numbers: "name", "short" (never broken), "label" or
    "words". With `class_` "stacked", a narrow screen shows each row as a block.
    """
    kind_of = {0: "name", **(kinds or {})}

    def cells(name: str, values: Sequence[Child], start: int, scope: str | None) -> list[Markup]:
        return [
            tag(name, value, class_=kind_of.get(column), scope=scope)
            for column, value in enumerate(values, start)
        ]

    body = [
        tag("tr", cells("th", row[:1], 0, "row"), cells("td", row[1:], 1, None)) for row in rows
    ]
    top = tag("tr", cells("th", head, 0, "col"))
    return scrolled(tag("table", tag("thead", top), tag("tbody", body), class_=class_), label)


def two_lines(value: Child, below: Child) -> list[Child]:
    """A cell with small print below its value."""
    return [value, tag("span", below, class_="ci") if below else None]


def scrolled(child: Child, label: str) -> Markup:
    """A box that scrolls by itself, also by keyboard, so that the page stays as wide as it is."""
    return tag("div", child, class_="scroll", role="region", aria_label=label, tabindex="0")


def speedup_tile(ratio: Ratio) -> list[Markup]:
    """A speedup and its interval, as large as each other."""
    return [tag("span", each, class_="pair") for each in (times(ratio.estimate), interval(ratio))]


def folded(summary: Child, *children: Child, is_open: bool = False) -> Markup:
    return tag("details", tag("summary", summary), *children, open=is_open)


def numbers_of(*children: Child) -> Markup:
    """The numbers of a picture, folded, for those who cannot see it or need them exactly."""
    return tag("details", tag("summary", "Numbers"), *children, class_="data")


def legend(names: Sequence[str]) -> Markup:
    """One entry for each series, with its colour, shape and dash."""
    return keys([(series_class(index), index, name) for index, name in enumerate(names)])


def keys(entries: Sequence[tuple[str, int, str]], *, lines: bool = True) -> Markup:
    """A legend of (class, shape, name); without `lines` the markers are open, as in a scatter."""
    size = {"viewBox": "0 0 28 14", "width": "28", "height": "14"}
    items = []
    for class_, shape, name in entries:
        stroke = line(1, 7, 27, 7, f"curve {class_}") if lines else None
        dot = marker(shape, 14, 7, f"dot {class_}" if lines else f"dot open {class_}")
        picture = tag("svg", stroke, dot, **size, aria_hidden="true")
        items.append(tag("li", picture, tag("span", name)))
    return tag("ul", items, class_="legend")
