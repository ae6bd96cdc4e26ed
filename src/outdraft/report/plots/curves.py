"""Acceptance as curves: over the places of a draft, and over temperatures."""

from __future__ import annotations

from collections.abc import Sequence

from outdraft.report.figures.acceptance import Curve
from outdraft.report.markup import Markup
from outdraft.report.numbers import is_finite
from outdraft.report.svg.frame import Frame, axes, make_frame
from outdraft.report.svg.marks import drawing, marker, path, series_class, shortened
from outdraft.report.svg.scale import labelled, ticks

_SHARES = labelled([0.0, 0.25, 0.5, 0.75, 1.0])


def survival_plot(curves: Sequence[Curve], label: str) -> Markup:
    """Position 1 to k against the share of rounds in which it was accepted."""
    longest = max((len(each.values) for each in curves), default=1)
    frame = make_frame((0.7, longest + 0.3), (0.0, 1.0))
    places = [(each, f"{each:.0f}") for each in ticks(1.0, float(longest), 8) if each == int(each)]
    drawn = [
        _curve(frame, index, each, [float(place) for place in range(1, len(each.values) + 1)],
               "position {x:.0f}")
        for index, each in enumerate(curves)
    ]  # fmt: skip
    return drawing(
        frame.width,
        frame.height,
        label,
        axes(frame, places, _SHARES, "position in the draft", "share of rounds accepted"),
        reversed(drawn),  # the first on top
    )


def temperature_plot(curves: Sequence[Curve], bands: Sequence[str], label: str) -> Markup:
    """Acceptance rate by band of temperature; a curve has a value for each, or a hole (NaN)."""
    frame = make_frame((-0.35, len(bands) - 0.65), (0.0, 1.0))
    names = [(float(at), shortened(band, 9)) for at, band in enumerate(bands)]
    drawn = [
        _curve(frame, index, each, [float(at) for at in range(len(bands))], "")
        for index, each in enumerate(curves)
    ]
    return drawing(
        frame.width,
        frame.height,
        label,
        axes(frame, names, _SHARES, "temperature", "acceptance rate"),
        reversed(drawn),
    )


def _curve(frame: Frame, index: int, curve: Curve, xs: Sequence[float], where: str) -> list[Markup]:
    class_ = series_class(index) + (" whole" if curve.is_whole else "")
    points = [(x, value) for x, value in zip(xs, curve.values, strict=False) if is_finite(value)]
    if not points:
        return []
    placed = [(frame.x.at(x), frame.y.at(value)) for x, value in points]
    dots = [
        marker(index, *place, f"dot {class_}",
               f"{curve.name}: {value:.2f} {where.format(x=x)}".rstrip())
        for place, (x, value) in zip(placed, points, strict=True)
    ]  # fmt: skip
    return [path(placed, f"curve {class_}"), *dots]
