"""Regret over time, drawn."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import fmean

from outdraft.report.markup import Markup, tag
from outdraft.report.plot import WIDTH, Axis, Plot, labelled, ticks
from outdraft.report.svg import path, series_class, text
from outdraft.report.theme import PALETTE

from .comparison import OFF, OURS, RULES, Compared
from .server import Run

_POINTS = 60
_SHOWN = (
    "60/40 of temperatures, 4 at a time",
    "copying and not, 1",
    "drifting 0.9 to 0.1, 32",
    "bursts of 60 tokens, 16",
    "adversary: turncoat, 16",
    "the machine gets slower half way",
)
Curve = list[tuple[float, float]]


def draw(every: Sequence[Compared], single: str) -> str:
    """Two plots beside each other: cases against their best fixed setting, policies against the
    clairvoyant one. `single`: the fixed setting that is best over all mixed cases."""
    shown = {each.case.name: each for each in every if each.case.name in _SHOWN}
    left = {
        name: _lost([(each.runs[OURS], each.runs[each.best_fixed])]) for name, each in shown.items()
    }
    mixed = [each for each in every if each.case.is_mixed] or every
    right = {}
    for name in (OFF, f"always {single}", *(each for each in RULES if each != "up and down"), OURS):
        pairs = []
        for each in mixed:
            policy = each.best_of(name) if name in RULES else name.removeprefix("always ")
            pairs.append((each.runs[policy], each.runs["clairvoyant"]))
        right[name] = _lost(pairs)
    pictures = [
        _plot(left, "ours: time lost to the best fixed setting, % of the run"),
        _plot(right, "mixed cases: time lost to the clairvoyant, % of the run"),
    ]
    height = 430.0
    moved = [
        tag("g", each, transform=f"translate({at * (WIDTH + 40)} 0)")
        for at, each in enumerate(pictures)
    ]
    return str(
        tag(
            "svg", tag("style", _style()), *moved, xmlns="http://www.w3.org/2000/svg",
            viewBox=f"0 0 {2 * WIDTH + 40:.0f} {height:.0f}", class_="page",
        )
    )  # fmt: skip


def _lost(pairs: Sequence[tuple[list[Run], list[Run]]]) -> Curve:
    """By share of the work done, the time that the first took longer, in percent of what the
    second took for all; the mean over cases and seeds."""
    curve = []
    for point in range(_POINTS + 1):
        share = point / _POINTS
        lost = [
            (_seconds(mine, share) - _seconds(theirs, share)) / _seconds(theirs, 1.0)
            for runs, others in pairs
            for mine, theirs in zip(runs, others, strict=True)
        ]
        curve.append((100 * share, 100 * fmean(lost)))
    return curve


def _seconds(run: Run, share: float) -> float:
    """When that share of the work was done, on a line between rounds."""
    wanted, before = share * run.course[-1][0], (0, 0.0)
    for (start, began), (end, ended) in pairwise([before, *run.course]):
        if end >= wanted:
            return began + (ended - began) * (wanted - start) / (end - start)
    return run.seconds


def _plot(curves: dict[str, Curve], title: str) -> Markup:
    values = [y for curve in curves.values() for _, y in curve]
    low, high = min(values), max(values)
    plot = Plot((0.0, 100.0), (low, high), height=300.0)
    lines = [
        path([plot.at(x, y) for x, y in curve], f"curve {series_class(at)}")
        for at, curve in enumerate(curves.values())
    ]
    picture = plot.draw(
        title,
        Axis("work done, %", labelled(ticks(0, 100))),
        Axis(title, labelled(ticks(low, high))),
        *lines,
    )
    names = [
        (path([(40, 322 + 16 * at), (64, 322 + 16 * at)], f"curve {series_class(at)}"),
         text(72, 326 + 16 * at, name))
        for at, name in enumerate(curves)
    ]  # fmt: skip
    inside = str(picture).replace("<svg", '<svg width="340" height="300"', 1)
    return tag("g", Markup(inside), *names)


def _style() -> Markup:
    sides = [
        "".join(f"--{name}:{both[side]};" for name, both in PALETTE.items()) for side in (0, 1)
    ]
    series = "".join(f".s{at}{{--c:var(--s{at})}}" for at in range(1, 7))
    dashes = "".join(
        f".curve.s{at}{{stroke-dasharray:{each}}}"
        for at, each in ((2, "7 3"), (3, "2.5 2.5"), (4, "8 3 2 3"), (5, "4 2"), (6, "1.5 3"))
    )
    return Markup(
        f"svg.page{{{sides[0]}font-family:system-ui,sans-serif;background:var(--surface)}}"
        f"@media (prefers-color-scheme:dark){{svg.page{{{sides[1]}}}}}"
        "text{font-size:11px;fill:var(--ink)}.tick,.title{fill:var(--quiet)}"
        ".grid{stroke:var(--grid)}.axis{stroke:var(--axis)}"
        ".curve{fill:none;stroke:var(--c);stroke-width:1.8}" + series + dashes
    )
