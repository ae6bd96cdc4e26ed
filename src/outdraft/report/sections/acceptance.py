"""How often draft tokens are accepted: by position in the draft, by temperature, by category."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from outdraft.report.layout import figure, folded, lead, legend, nothing, numbers_of, panels, table
from outdraft.report.markup import Markup, join
from outdraft.report.numbers import (
    UNKNOWN,
    count_of,
    counted,
    drafted_text,
    is_finite,
    percent,
    share,
)
from outdraft.report.plot import WIDTH, Axis, Mark, Plot, Scale, labelled, named_ticks
from outdraft.report.svg import NUM_SERIES, abbreviated, drawing, line, marker, series_class, text
from outdraft.tune.arm import proposer_name
from outdraft.tune.results import FROM_COUNTERS, SOURCES, AcceptanceResult, Results

_SHARES = labelled([0.0, 0.25, 0.5, 0.75, 1.0])
_NUM_SHOWN = 3  # proposers with a figure by category; the others are folded
_LEFT, _RIGHT, _ROW, _TOP = 104.0, WIDTH - 14.0, 23.0, 8.0  # pixels, of those figures


class AcceptanceCurve(NamedTuple):
    name: str
    values: tuple[float, ...]  # by position, or by band of temperatures; NaN: not measured
    is_total: bool = False  # over all temperatures
    num_requests: int | None = None  # None: not recorded


class Spread(NamedTuple):
    """Acceptance rates of the requests of one category; None: too few of them."""

    category: str
    p10: float | None
    p50: float | None
    p90: float | None
    num_requests: int | None = None  # None: not recorded


def acceptance_section(results: Results) -> Markup:
    proposers = ranked(results)
    if not proposers:
        return nothing("No acceptance was measured.")
    curves = curves_by_position(proposers)
    left_out = len(curves) - NUM_SERIES
    # A proposer with one curve alone is in the first figure already, if there is room.
    apart = [
        each
        for at, each in enumerate(proposers)
        if len(curves_by_temperature(each)) > 1 or at >= NUM_SERIES
    ]
    note = f"The first {NUM_SERIES}; {left_out} more have panels of their own."
    return join(
        lead(
            "How often draft tokens are accepted, over the requests of first blocks and race, all "
            "loads together, of a proposer at its largest draft length; the table of arms counts "
            "each load by itself, of an arm that was judged the final. A position counts as "
            "accepted only if all positions before it were."
        ),
        _unsplit("By temperature", proposers),
        panels(
            _by_position(
                "All proposers, by position",
                note if left_out > 0 else None,
                curves[:NUM_SERIES],
                "acceptance by position, a curve for each proposer",
            ),
            _by_temperature([each for each in proposers if each.by_temperature][:NUM_SERIES]),
            *(_of_proposer(each) for each in apart[:1]),
        ),
        folded(
            f"{len(apart) - 1} more proposer{'s' * (len(apart) != 2)}, by position",
            panels(*(_of_proposer(each) for each in apart[1:])),
        )
        if len(apart) > 1
        else None,
        table(
            ("proposer", "k", "rate", "length", "steps with a draft", "n", "counted"),
            [
                (each.name, str(each.k), share(each.rate), share(each.length),
                 percent(each.share_drafted), counted(each.num_requests),
                 SOURCES.get(each.source, UNKNOWN))
                for each in proposers
            ],
            "acceptance of each proposer",
            {6: "words"},
        ),
    )  # fmt: skip


def _unsplit(what: str, proposers: Sequence[AcceptanceResult]) -> Markup | None:
    """Which proposers have no part of the traffic for themselves, and why."""
    names = [each.name for each in proposers if each.source == FROM_COUNTERS]
    if not names:
        return None
    of_whom = "" if len(names) == len(proposers) else f" of {', '.join(names)}"
    return nothing(
        f"{what}, the acceptance{of_whom} is not known: that needs the acceptance of each answer. "
        "This server's answers do not report it (vLLM's do from 0.29 on), and its counters are "
        "those of whole blocks."
    )


def ranked(results: Results) -> tuple[AcceptanceResult, ...]:
    """The proposer of the best arm first, the others by their acceptance rate."""
    best = None if results.main is None else results.main.best_arm
    first = None if best is None else proposer_name(best.speculation)
    return tuple(sorted(results.acceptance, key=lambda each: (each.name != first, -each.rate)))


def _of_proposer(proposer: AcceptanceResult) -> Markup | None:
    length = "" if proposer.length is None else f", length {proposer.length:.2f}"
    drafted = drafted_text(proposer.share_drafted)
    note = f"rate {share(proposer.rate)}{length} at k={proposer.k}"
    return _by_position(
        proposer.name,
        f"{note}, {count_of(proposer.num_requests)}{f'; {drafted}' if drafted else ''}",
        curves_by_temperature(proposer),
        f"acceptance by position of {proposer.name}, by temperature",
    )


def _by_position(
    title: str, note: str | None, curves: Sequence[AcceptanceCurve], label: str
) -> Markup | None:
    if not curves:
        return None
    longest = max(len(curve.values) for curve in curves)
    rows = [
        (name, *map(share, values), *[UNKNOWN] * (longest - len(values)), counted(count))
        for name, values, _, count in curves
    ]
    names = [name + (f", {count_of(count)}" if count else "") for name, _, _, count in curves]
    return figure(
        title,
        note,
        position_plot(curves, label),
        legend(names),
        numbers_of(table(("position", *_positions(longest), "n"), rows, label)),
    )


def _positions(count: int) -> list[str]:
    return [str(1 + at) for at in range(count)]


def curves_by_position(proposers: Sequence[AcceptanceResult]) -> tuple[AcceptanceCurve, ...]:
    return tuple(
        AcceptanceCurve(each.name, each.per_position, num_requests=each.num_requests)
        for each in proposers
        if each.per_position
    )


def curves_by_temperature(proposer: AcceptanceResult) -> tuple[AcceptanceCurve, ...]:
    """The total, then each band of temperatures; a single band is the total."""
    bands = [
        AcceptanceCurve(f"temperature {band}", values, False, proposer.num_by_temperature.get(band))
        for band, values in proposer.per_position_by_temperature.items()
        if values
    ]
    if not proposer.per_position:
        return tuple(bands)
    total = AcceptanceCurve("all", proposer.per_position, True, proposer.num_requests)
    return (total, *(bands if len(bands) > 1 else ()))


def _by_temperature(proposers: Sequence[AcceptanceResult]) -> Markup | None:
    bands = temperature_bands(proposers)
    if len(bands) < 2:  # a single band is the total
        return None
    label = "acceptance rate by temperature, a curve for each proposer"
    curves = [
        AcceptanceCurve(each.name, tuple(each.by_temperature.get(band, math.nan) for band in bands))
        for each in proposers
    ]
    rows = [
        (each.name, *(_rate_with_count(each, band) for band in bands), counted(each.num_requests))
        for each in proposers
    ]
    return figure(
        "All proposers, by temperature",
        None,
        temperature_plot(curves, bands, label),
        legend([each.name for each in proposers]),
        numbers_of(table(("proposer", *bands, "n"), rows, label)),
    )


def temperature_bands(proposers: Sequence[AcceptanceResult]) -> tuple[str, ...]:
    """All bands that occur, in the order of the results."""
    return tuple(dict.fromkeys(band for each in proposers for band in each.by_temperature))


def _rate_with_count(proposer: AcceptanceResult, band: str) -> str:
    rate = share(proposer.by_temperature.get(band))
    count = proposer.num_by_temperature.get(band)
    return rate if count is None else f"{rate} ({count_of(count)})"


def position_plot(curves: Sequence[AcceptanceCurve], label: str) -> Markup:
    """Positions 1 to k, and the share of rounds in which each was accepted."""
    names = _positions(max((len(curve.values) for curve in curves), default=1))
    places = [f" position {name}" for name in names]
    return _plot(curves, label, "position in the draft", names, "share of rounds accepted", places)


def temperature_plot(curves: Sequence[AcceptanceCurve], bands: Sequence[str], label: str) -> Markup:
    """Acceptance rate by band of temperatures."""
    return _plot(curves, label, "temperature", bands, "acceptance rate", [""] * len(bands))


def _plot(
    curves: Sequence[AcceptanceCurve],
    label: str,
    x: str,
    names: Sequence[str],
    y: str,
    places: Sequence[str],
) -> Markup:
    """`names` are written on the axis, `places` after a point's value."""
    plot = Plot((-0.35, len(names) - 0.65), (0.0, 1.0))
    drawn = []
    for index, curve in enumerate(curves):
        marks = [
            Mark(at, value, f"{curve.name}: {value:.2f}{places[at]}")
            for at, value in enumerate(curve.values)
            if is_finite(value)
        ]
        class_ = series_class(index) + (" whole" if curve.is_total else "")
        drawn.append(plot.curve(marks, class_, index))
    # The first curve is drawn last, so that it is on top.
    return plot.draw(label, Axis(x, named_ticks(names)), Axis(y, _SHARES), reversed(drawn))


def category_section(results: Results) -> Markup:
    proposers = ranked(results)
    figures = [_by_category(each) for each in proposers if each.by_category]
    missing = _unsplit("By category", proposers)
    if not figures:
        return missing or nothing("No acceptance by category was measured.")
    rest = figures[_NUM_SHOWN:]
    return join(
        lead(
            "Over the requests of each category: the dot is P50, the bar goes from P10 to P90. "
            "A long bar means that some requests gain much more than others."
        ),
        missing,
        panels(*figures[:_NUM_SHOWN]),
        folded(f"{len(rest)} more proposers", panels(*rest)) if rest else None,
    )


def _by_category(proposer: AcceptanceResult) -> Markup:
    spreads = category_spreads(proposer)
    label = f"acceptance by category of {proposer.name}"
    rows = [(name, *map(share, rates), counted(count)) for name, *rates, count in spreads]
    return figure(
        proposer.name,
        f"{count_of(proposer.num_requests)} requests over all categories",
        spread_plot(spreads, f"{label}: P10, P50 and P90"),
        numbers_of(table(("category", "P10", "P50", "P90", "n"), rows, label)),
    )


def category_spreads(proposer: AcceptanceResult) -> tuple[Spread, ...]:
    """The category with the highest median first; those without one last."""
    counts = proposer.num_by_category
    spreads = [Spread(name, *each, counts.get(name)) for name, each in proposer.by_category.items()]
    return tuple(sorted(spreads, key=lambda each: -(each.p50 or 0.0)))


def spread_plot(spreads: Sequence[Spread], label: str) -> Markup:
    """A row for each category: P10 to P90 as a bar, P50 as a dot."""
    bottom = _TOP + _ROW * max(len(spreads), 1)
    x = Scale(0.0, 1.0, _LEFT, _RIGHT)
    grid = [
        join(
            line(x.at(value), _TOP, x.at(value), bottom, "grid"),
            text(x.at(value), bottom + 15, f"{value:g}", "middle", "tick"),
        )
        for value, _ in _SHARES
    ]
    rows = [_row(each, _TOP + _ROW * (at + 0.5), x) for at, each in enumerate(spreads)]
    title = text(_RIGHT, bottom + 31, "acceptance rate", "end", "title")
    return drawing(WIDTH, bottom + 36, label, grid, rows, title)


def _row(spread: Spread, y: float, x: Scale) -> Markup:
    category, p10, p50, p90, count = spread
    name = text(_LEFT - 10, y + 4, abbreviated(category, 14), "end", "label")
    if p50 is None:
        return join(name, text(_LEFT + 4, y + 4, "too few requests", "start", "quiet"))
    rates = f"P10 {share(p10)}, P50 {share(p50)}, P90 {share(p90)}"
    title = f"{category}: {rates}" + (f", {count_of(count)}" if count else "")
    median = x.at(p50)
    ends = [x.at(end) for end in (p10, p90) if end is not None]
    return join(
        name,
        line(min([median, *ends]), y, max([median, *ends]), y, "range"),
        [line(end, y - 4, end, y + 4, "range") for end in ends],
        marker(0, median, y, "dot s1", title, r=4.6),
    )
