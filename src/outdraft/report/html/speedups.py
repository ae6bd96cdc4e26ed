"""Speedup by draft length and load: a heat map made of tables, so that its numbers are text."""

from __future__ import annotations

from collections.abc import Sequence

from outdraft.report.figures.loads import load_axis
from outdraft.report.figures.speedups import Cell, Grid, heat_end, speedup_grids
from outdraft.report.html.parts import nothing, panels, scrolled, section
from outdraft.report.markup import Markup, join, tag
from outdraft.report.numbers import count_of, interval, objective_name, times
from outdraft.tune.results import DROPPED, Results

_MOST_HEAT = 62  # percent of the colour at the ends of the scale; ink stays readable on it


def speedups_section(results: Results) -> Markup:
    grids = speedup_grids(results)
    if not grids:
        return section("speedups", "Speedup by draft length and load", None,
                       nothing("No arm was tried."))  # fmt: skip
    end = heat_end(grids)
    title, heads = load_axis(results)
    # A cell needs so much room; with many loads a grid takes the whole width, then scrolls.
    width = f"--panel:{max(310, 44 + 84 * len(heads))}px;--loads:{len(heads)}"
    return section(
        "speedups",
        "Speedup by draft length and load",
        f"Speedup over off in {objective_name(results.objective)}, under the same load; above 1 "
        "is faster. Each measured cell has its interval and how many paired requests it rests on.",
        _legend(end),
        panels(*(_grid(each, end, heads, title) for each in grids), style=width),
    )


def _legend(end: float) -> Markup:
    return tag(
        "ul",
        tag("li", tag("span", times(1 / end)), tag("span", class_="ramp"), tag("span", times(end))),
        tag("li", tag("span", "★", class_="swatch best"), "best under its load"),
        tag("li", tag("span", "≈", class_="swatch guess"), "predicted only, not measured"),
        tag("li", tag("span", "✕", class_="swatch failed"), "failed"),
        tag("li", "† dropped: hardly better than the best"),
        class_="legend heat-legend",
    )


def _grid(grid: Grid, end: float, heads: Sequence[str], title: str) -> Markup:
    head = join(
        tag("tr", tag("td"), tag("th", title, colspan=str(len(heads)), scope="colgroup")),
        tag("tr", tag("td"), [tag("th", name, scope="col") for name in heads]),
    )
    rows = [
        tag(
            "tr",
            tag("th", "–" if k is None else f"k={k}", scope="row"),
            [_cell(grid.cells.get((k, load)), end) for load in grid.loads],
        )
        for k in grid.ks
    ]
    return tag(
        "figure",
        tag("figcaption", tag("h3", grid.proposer)),
        scrolled(
            tag("table", tag("thead", head), tag("tbody", rows), class_="heat"),
            f"speedups of {grid.proposer}",
        ),
    )


def _cell(cell: Cell | None, end: float) -> Markup:
    if cell is None:
        return tag("td", tag("span", "not tried", class_="n"), class_="empty")
    arm = cell.arm
    warmth = cell.heat(end)
    heat = f"--heat:{abs(warmth) * _MOST_HEAT:.0f}%"
    side = "gain" if warmth >= 0 else "loss"
    if cell.is_failed:
        return tag("td", tag("b", "✕ failed"), tag("span", arm.reason, class_="n clamp"),
                   class_="failed", title=arm.reason or None)  # fmt: skip
    if arm.measured is not None:
        star = "★ " if cell.is_best else ""
        dropped = " †" if arm.state == DROPPED else ""
        return tag(
            "td",
            tag("b", star, times(arm.measured.estimate)),
            tag("span", interval(arm.measured), class_="ci"),
            tag("span", count_of(arm.measured.num_pairs), dropped, class_="n"),
            class_=f"{side} best" if cell.is_best else side,
            style=heat,
            title=arm.reason or None,
        )
    if arm.predicted is not None:
        told = join(tag("b", "≈ ", times(arm.predicted)), tag("span", "predicted", class_="n"))
        return tag("td", told, class_=f"{side} guess", style=heat, title=arm.reason or None)
    return tag("td", tag("b", arm.state), tag("span", arm.reason, class_="n clamp"),
               class_="empty")  # fmt: skip
