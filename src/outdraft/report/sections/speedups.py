"""Speedup by draft length and load: one grid of cells for each proposer, coloured by speedup."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from outdraft.report.layout import figure, folded, lead, nothing, panels, scrolled
from outdraft.report.markup import Markup, join, tag
from outdraft.report.numbers import count_of, interval, is_finite, objective_name, times
from outdraft.report.sections.loads import load_axis
from outdraft.stats.ratios import Ratio
from outdraft.tune.answer import LoadAnswer, RangeAnswer, answer_of
from outdraft.tune.arm import proposer_name
from outdraft.tune.results import BASELINE, BEST, DROPPED, FAILED, ArmResult, Results
from outdraft.tune.rivals import why_not_higher

_MOST_HEAT = 62  # percent of the colour at the ends of the scale; text stays readable on it
_MOST_SHOWN = 3  # grids; the others are folded, as are those with predictions alone
_FEWEST_FOLDED = 3  # draft lengths that were not measured; fewer stay among the others
_ENDS = (1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0)  # speedups at which the scale may end


class Grid(NamedTuple):
    proposer: str
    arms: Mapping[tuple[int, str], ArmResult]  # by draft length and load

    def was_tried(self, k: int) -> bool:
        """Whether the draft length was measured at a load, or failed there."""
        arms = [arm for (length, _), arm in self.arms.items() if length == k]
        return any(arm.measured is not None or arm.state == FAILED for arm in arms)

    @property
    def was_judged(self) -> bool:
        return any(arm.state == BEST for arm in self.arms.values())

    @property
    def is_measured(self) -> bool:
        return any(arm.measured is not None for arm in self.arms.values())

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
    answer = answer_of(results)
    shown = [grid for grid in grids if grid.is_measured][:_MOST_SHOWN]
    rest = [grid for grid in grids if grid not in shown]
    drawn = {grid.proposer: _grid(grid, end, results, answer) for grid in grids}
    higher = [sentence for load in results.loads for sentence in why_not_higher(load)]
    return join(
        lead(
            f"Speedup over off in {objective_name(results.objective)}, under the same load; above "
            "1 is faster. A measured cell shows its interval and its number of paired requests."
        ),
        _legend(end, answer),
        panels(*(drawn[grid.proposer] for grid in shown), style=width) if shown else None,
        folded(
            f"{len(rest)} more proposer{'s' * (len(rest) != 1)}",
            panels(*(drawn[grid.proposer] for grid in rest), style=width),
            is_open=not shown,
        )
        if rest
        else None,
        [
            tag("h3", "Higher, and not chosen", class_="after"),
            tag("ul", [tag("li", sentence) for sentence in higher], class_="notes"),
        ]
        if higher
        else None,
    )


def speedup_grids(results: Results) -> list[Grid]:
    """Those with an arm that was judged first, then by the fastest."""
    arms: dict[str, dict[tuple[int, str], ArmResult]] = {}
    for load in results.loads:
        for arm in load.arms:
            if arm.state != BASELINE and not arm.speculation.is_off:
                grid = arms.setdefault(proposer_name(arm.speculation), {})
                grid[arm.speculation.k, load.name] = arm
    grids = [Grid(proposer, each) for proposer, each in arms.items()]
    return sorted(grids, key=lambda grid: (not grid.was_judged, -grid.rank))


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


def _legend(end: float, answer: RangeAnswer) -> Markup:
    starred = any(each.arm is not None for each in answer.loads)
    entries = [
        ("best", "★", "recommended under its load") if starred else None,
        ("judged", "◇", "judged against off, not recommended"),
        ("unsure", "?", "few requests, or off may be as fast"),
        ("guess", "≈", "predicted, not measured"),
        ("failed", "✕", "failed"),
    ]
    return tag(
        "ul",
        tag("li", tag("span", times(1 / end)), tag("span", class_="ramp"), tag("span", times(end))),
        [
            tag("li", tag("span", sign, class_=f"swatch {kind}"), words)
            for kind, sign, words in filter(None, entries)
        ],
        tag("li", "† dropped: unlikely to beat the best"),
        class_="legend heat-legend",
    )


def _grid(grid: Grid, end: float, results: Results, answer: RangeAnswer) -> Markup:
    """Draft lengths that were measured at no load are folded, where there are several."""
    lengths = sorted({k for k, _ in grid.arms})
    guessed = [k for k in lengths if not grid.was_tried(k)]
    if len(guessed) < _FEWEST_FOLDED or len(guessed) == len(lengths):
        guessed = []
    tried = [k for k in lengths if k not in guessed]
    label = f"speedups of {grid.proposer}"
    return figure(
        grid.proposer,
        None,
        scrolled(_cells(grid, tried, end, results, answer), label),
        folded(
            f"{len(guessed)} draft lengths that were not measured",
            scrolled(_cells(grid, guessed, end, results, answer), f"{label}, not measured"),
        )
        if guessed
        else None,
    )


def _cells(
    grid: Grid, lengths: Sequence[int], end: float, results: Results, answer: RangeAnswer
) -> Markup:
    title, names = load_axis(results)
    head = join(
        tag("tr", tag("td"), tag("th", title, colspan=str(len(names)), scope="colgroup")),
        tag("tr", tag("td"), [tag("th", name, scope="col") for name in names]),
    )
    rows = [
        tag(
            "tr",
            tag("th", f"k={k}", scope="row"),
            [_cell(grid.arms.get((k, load.name)), end, answer.at(load)) for load in results.loads],
        )
        for k in lengths
    ]
    return tag("table", tag("thead", head), tag("tbody", rows), class_="heat")


def is_unsure(ratio: Ratio) -> bool:
    """Whether a measurement is no more than a hint: no interval, or one with 1 in it."""
    return ratio.low is None or ratio.high is None or ratio.low <= 1 <= ratio.high


def _cell(arm: ArmResult | None, end: float, answer: LoadAnswer) -> Markup:
    if arm is None:
        return tag("td", tag("span", "not tried", class_="n"), class_="empty")
    reason = tag("span", arm.reason, class_="n clamp")
    if arm.state == FAILED:
        return tag("td", tag("b", "✕ failed"), reason, class_="failed", title=arm.reason or None)
    if arm.speedup is None:
        return tag("td", tag("b", arm.fate), reason, class_="empty")
    warmth = heat(arm.speedup, end)
    kinds = ["gain" if warmth >= 0 else "loss"]
    if arm.measured is None:
        kinds.append("guess")
        shown = [tag("b", "≈ ", times(arm.predicted)), tag("span", "predicted", class_="n")]
    else:
        sign = ""
        if arm.name == answer.arm:
            kinds, sign = [*kinds, "best"], "★ "
        elif arm.name == answer.load.best:
            kinds, sign = [*kinds, "judged"], "◇ "
        if is_unsure(arm.measured):
            kinds, sign = [*kinds, "unsure"], f"{sign}? "
        count = count_of(arm.measured.num_pairs) + (" †" if arm.state == DROPPED else "")
        shown = [
            tag("b", sign, times(arm.measured.estimate)),
            tag("span", interval(arm.measured), class_="ci"),
            tag("span", count, class_="n"),
        ]
    style = f"--heat:{abs(warmth) * _MOST_HEAT:.0f}%"
    return tag("td", shown, class_=" ".join(kinds), style=style, title=arm.reason or None)
