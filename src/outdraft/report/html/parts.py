"""Pieces that every section is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from outdraft.report.markup import Child, Markup, tag
from outdraft.report.svg.marks import line, marker, series_class


def section(key: str, title: str, lead: Child, *children: Child) -> Markup:
    return tag(
        "section",
        tag("h2", title, id=f"{key}-title"),
        tag("p", lead, class_="lead") if lead else None,
        *children,
        id=key,
        aria_labelledby=f"{key}-title",
    )


def figure(title: Child, note: Child, picture: Child, *below: Child) -> Markup:
    """A picture with its title above and what belongs to it below."""
    return tag(
        "figure",
        tag("figcaption", tag("h3", title), tag("p", note) if note else None),
        picture,
        *below,
    )


def panels(*figures: Child, style: str | None = None) -> Markup:
    """Side by side where there is room."""
    return tag("div", *figures, class_="panels", style=style)


def table(
    head: Sequence[Child],
    rows: Sequence[Sequence[Child]],
    label: str,
    kinds: Mapping[int, str] | None = None,
    class_: str | None = None,
) -> Markup:
    """`kinds`: what stands in a column if not numbers: "name", "short" (never broken), "label"
    or "words". The first column names its row. `class_` "stacked": on a phone a row is a block.
    """
    of = {0: "name"} | dict(kinds or {})

    def cells(kind: str, values: Sequence[Child], start: int, scope: str | None) -> list[Markup]:
        return [
            tag(kind, value, class_=of.get(at), scope=scope)
            for at, value in enumerate(values, start)
        ]

    body = [
        tag("tr", cells("th", row[:1], 0, "row"), cells("td", row[1:], 1, None)) for row in rows
    ]
    top = tag("tr", cells("th", head, 0, "col"))
    return scrolled(tag("table", tag("thead", top), tag("tbody", body), class_=class_), label)


def scrolled(child: Child, label: str) -> Markup:
    """A box that scrolls by itself, also by keyboard, so that the page never does."""
    return tag("div", child, class_="scroll", role="region", aria_label=label, tabindex="0")


def folded(summary: Child, *children: Child, opened: bool = False) -> Markup:
    return tag("details", tag("summary", summary), *children, open=opened)


def data_of(*children: Child) -> Markup:
    """The numbers of a picture, for whoever cannot see it or wants them exactly."""
    return tag("details", tag("summary", "Numbers"), *children, class_="data")


def legend(names: Sequence[tuple[int, str]], *, lines: bool = True) -> Markup:
    """(series, name): colour, shape and dash as they are drawn."""
    return keys([(series_class(index), index, name) for index, name in names], lines=lines)


def keys(entries: Sequence[tuple[str, int, str]], *, lines: bool = True) -> Markup:
    """(class, shape, name)."""
    return tag(
        "ul",
        [
            tag(
                "li",
                tag(
                    "svg",
                    line(1, 7, 27, 7, f"curve {class_}") if lines else None,
                    marker(shape, 14, 7, f"dot {class_}" if lines else f"dot open {class_}"),
                    viewBox="0 0 28 14",
                    width="28",
                    height="14",
                    aria_hidden="true",
                ),
                tag("span", name),
            )
            for class_, shape, name in entries
        ],
        class_="legend",
    )


def nothing(words: str) -> Markup:
    return tag("p", words, class_="nothing")
