"""Two distributions of times, as the share of requests done by then, with their percentiles."""

from __future__ import annotations

from outdraft.report.figures.latency import Distribution, Latency
from outdraft.report.markup import Markup
from outdraft.report.numbers import milliseconds
from outdraft.report.svg.frame import Frame, axes, make_frame
from outdraft.report.svg.marks import drawing, line, marker, path, text
from outdraft.report.svg.scale import labelled, ticks

_SHARES = [(0.0, "0"), (0.5, "P50"), (0.95, "P95"), (1.0, "")]


def latency_plot(latency: Latency, label: str) -> Markup:
    frame = make_frame((0.0, latency.end), (0.0, 1.0))
    return drawing(
        frame.width,
        frame.height,
        label,
        axes(
            frame,
            labelled(ticks(0.0, latency.end, 6)),
            _SHARES,
            "ms",
            "share of requests within",
        ),
        _curve(frame, latency.off, "off", 1),
        _curve(frame, latency.best, "best", 0),
        _medians(frame, latency),
    )


def _curve(frame: Frame, found: Distribution, class_: str, shape: int) -> list[Markup]:
    """Steps, as a sample has them."""
    placed = [(frame.left, frame.bottom)]
    for ms, share in found.points:
        if ms > frame.x.high:
            break
        x, y = frame.x.at(ms), frame.y.at(share)
        placed += [(x, placed[-1][1]), (x, y)]
    dots = [
        marker(
            shape,
            frame.x.at(each.value),
            frame.y.at(each.q),
            f"dot {class_}",
            f"{found.arm}: P{100 * each.q:.0f} {milliseconds(each.value)} ms (n={found.count})",
        )
        for each in found.quantiles
    ]
    return [path(placed, f"curve {class_}"), *dots]


def _medians(frame: Frame, latency: Latency) -> list[Markup]:
    """From each median down to the axis."""
    parts = []
    for found, class_ in ((latency.off, "off"), (latency.best, "best")):
        x = frame.x.at(found.quantiles[0].value)
        parts.append(line(x, frame.y.at(0.5), x, frame.bottom, f"drop {class_}"))
    off, best = (frame.x.at(each.quantiles[0].value) for each in (latency.off, latency.best))
    if abs(off - best) > 40:  # room for both values
        for x, found, class_ in ((off, latency.off, "off"), (best, latency.best, "best")):
            shown = milliseconds(found.quantiles[0].value)
            parts.append(text(x + 5, frame.bottom - 6, shown, "start", f"value {class_}"))
    return parts
