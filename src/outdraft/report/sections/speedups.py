"""Speedup by draft length and load: one grid of cells for each proposer, coloured by speedup."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from outdraft.report.layout import figure, lead, nothing, panels, scrolled
from outdraft.report.markup import Markup, join, tag
from outdraft.report.numbers import count_of, interval, is_finite, objective_name, times
from outdraft.report.sections.loads import load_axis
from outdraft.tune.arm import proposer_name
from outdraft.tune.results import BASELINE, BEST, DROPPED, FAILED, ArmResult, Results

_MOST_HEAT = 62  # percent of the colour at the ends of the scale; text stays readable on it
_ENDS = (1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0)  # speedups at which the scale may end


class Grid(NamedTuple):
    proposer: str
    arms: Mapping[tuple[int, str], ArmResult]  # by draft length and load

    @property
    def rank(self) -> float:
        """The fastest measured arm; predictions rank below all measurements."""
        return max(
            (arm.speedup or 0.0) * (1.0 if arm.measured is not None else 0.001)
            for arm in self.arms.values()
        )


def speedups_section(results: Results) -> Markup:
    grids = speedup_grids(results)
    if not grids:
        return nothing("No arm was tried.")
    end = heat_end(grids)
    num_loads = len(results.loads)
    # A cell needs this much room; with many loads a grid takes the whole width, then scrolls.
    width = f"--panel:{max(310, 44 + 84 * num_loads)}px;--loads:{num_loads}"
    return join(
        lead(
            f"Speedup over off in {objective_name(results.objective)}, under the same load; above "
            "1 is faster. A measured cell shows its interval and its number of paired requests."
        ),
        _legend(end),
        panels(*(_grid(grid, end, results) for grid in grids), style=width),
    )


def speedup_grids(results: Results) -> list[Grid]:
    """The proposer with the fastest arm first."""
    arms: dict[str, dict[tuple[int, str], ArmResult]] = {}
    for load in results.loads:
        for arm in load.arms:
            if arm.state != BASELINE and not arm.speculation.is_off:
                grid = arms.setdefault(proposer_name(arm.speculation), {})
                grid[arm.speculation.k, load.name] = arm
    grids = [Grid(proposer, each) for proposer, each in arms.items()]
    return sorted(grids, key=lambda grid: -grid.rank)


def heat_end(grids: Sequence[Grid]) -> float:
    """The speedup that gets the full colour, so that differences show. So does its inverse."""
    speedups = [arm.speedup for grid in grids for arm in grid.arms.values()]
    most = max((max(x, 1 / x) for x in speedups if is_finite(x) and x > 0), default=1.0)
    return next((end for end in _ENDS if end >= most), _ENDS[-1])


def heat(speedup: float | None, end: float) -> float:
    """From -1 (slower than off by the factor `end`) over 0 (as fast) to 1 (faster)."""
    if not is_finite(speedup) or speedup <= 0:
        return 0.0
    return min(max(math.log(speedup) / math.log(end), -1.0), 1.0)


def _legend(end: float) -> Markup:
    return tag(
        "ul",
        tag("li", tag("span", times(1 / end)), tag("span", class_="ramp"), tag("span", times(end))),
        tag("li", tag("span", "★", class_="swatch best"), "best under its load"),
        tag("li", tag("span", "≈", class_="swatch guess"), "predicted, not measured"),
        tag("li", tag("span", "✕", class_="swatch failed"), "failed"),
        tag("li", "† dropped: unlikely to beat the best"),
        class_="legend heat-legend",
    )


def _grid(grid: Grid, end: float, results: Results) -> Markup:
    title, names = load_axis(results)
    head = join(
        tag("tr", tag("td"), tag("th", title, colspan=str(len(names)), scope="colgroup")),
        tag("tr", tag("td"), [tag("th", name, scope="col") for name in names]),
    )
    rows = [
        tag(
            "tr",
            tag("th", f"k={k}", scope="row"),
            [_cell(grid.arms.get((k, load.name)), end) for load in results.loads],
        )
        for k in sorted({k for k, _ in grid.arms})
    ]
    cells = tag("table", tag("thead", head), tag("tbody", rows), class_="heat")
    return figure(grid.proposer, None, scrolled(cells, f"speedups of {grid.proposer}"))


def _cell(arm: ArmResult | None, end: float) -> Markup:
    if arm is None:
        return tag("td", tag("span", "not tried", class_="n"), class_="empty")
    reason = tag("span", arm.reason, class_="n clamp")
    if arm.state == FAILED:
        return tag("td", tag("b", "✕ failed"), reason, class_="failed", title=arm.reason or None)
    if arm.speedup is None:
        return tag("td", tag("b", arm.state), reason, class_="empty")
    warmth = heat(arm.speedup, end)
    class_ = "gain" if warmth >= 0 else "loss"
    if arm.measured is None:
        class_ += " guess"
        shown = [tag("b", "≈ ", times(arm.predicted)), tag("span", "predicted", class_="n")]
    else:
        is_best = arm.state == BEST
        class_ += " best" if is_best else ""
        count = count_of(arm.measured.num_pairs) + (" †" if arm.state == DROPPED else "")
        shown = [
            tag("b", "★ " if is_best else "", times(arm.measured.estimate)),
            tag("span", interval(arm.measured), class_="ci"),
            tag("span", count, class_="n"),
        ]
    style = f"--heat:{abs(warmth) * _MOST_HEAT:.0f}%"
    return tag("td", shown, class_=class_, style=style, title=arm.reason or None)
