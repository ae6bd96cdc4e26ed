"""Distributions of times: the share of requests that were done within a time, a curve for each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outdraft.measure.summary import QUANTILES, QuantileEstimate, quantiles
from outdraft.records import Record
from outdraft.report.layout import figure, legend, nothing, numbers_of, panels, table
from outdraft.report.markup import Markup
from outdraft.report.numbers import UNKNOWN, count_of, milliseconds
from outdraft.report.plot import Axis, Plot, labelled, ticks
from outdraft.report.svg import marker, path, series_class
from outdraft.stats.percentiles import percentile

SHARES = Axis("share of requests within", [(0.0, "0"), (0.5, "P50"), (0.95, "P95"), (1.0, "")])
_TIMES = (
    ("TTFT", "from the time a request was due to its first token", "ttft_ns"),
    ("TPOT", "time per output token after the first", "tpot_ns"),
    ("e2e", "from the time a request was due to its last token", "e2e_ns"),
)
_MOST_POINTS = 160  # of a curve; more make no visible difference


@dataclass(frozen=True, slots=True)
class Distribution:
    name: str
    count: int
    points: tuple[tuple[float, float], ...]  # (ms, share of the requests within it)
    quantiles: tuple[QuantileEstimate, ...]  # those that may be shown


def distribution_of(
    name: str, times_ms: Sequence[float], percentiles: Sequence[QuantileEstimate]
) -> Distribution:
    ordered = sorted(times_ms)
    count = len(ordered)
    step = -(-count // _MOST_POINTS)
    points = [(ordered[at], (at + 1) / count) for at in range(0, count, step)]
    if points[-1][1] < 1:
        points.append((ordered[-1], 1.0))
    return Distribution(name, count, tuple(points), tuple(percentiles))


def axis_end(*times_ms: Sequence[float]) -> float:
    """A little beyond all P99: a single slow request does not squeeze the curves."""
    return 1.06 * max(percentile(each, 0.99) for each in times_ms)


def share_curve(plot: Plot, times_of: Distribution, class_: str, shape: int) -> list[Markup]:
    """A step function, with a marker at each percentile."""
    steps = [(plot.left, plot.bottom)]
    for ms, share in times_of.points:
        if ms > plot.x.high:
            break
        x, y = plot.at(ms, share)
        steps += [(x, steps[-1][1]), (x, y)]
    dots = [
        marker(
            shape,
            *plot.at(each.value, each.q),
            f"dot {class_}",
            f"{times_of.name}: P{100 * each.q:.0f} {milliseconds(each.value)} ms "
            f"({count_of(times_of.count)})",
        )
        for each in times_of.quantiles
    ]
    return [path(steps, f"curve {class_}"), *dots]


def time_panels(groups: Mapping[str, Sequence[Record]], *, has_tail: bool = True) -> Markup:
    """A picture for each kind of time; `groups`: the records of each curve, by its name. Without
    `has_tail`, no P99 is shown."""
    figures = [_figure(*kind, groups, has_tail=has_tail) for kind in _TIMES]
    known = [each for each in figures if each is not None]
    return panels(*known) if known else nothing("No request was answered.")


def _figure(
    title: str, note: str, key: str, groups: Mapping[str, Sequence[Record]], *, has_tail: bool
) -> Markup | None:
    times = {name: _milliseconds(records, key) for name, records in groups.items()}
    times = {name: each for name, each in times.items() if each}
    if not times:
        return None
    end = axis_end(*times.values())
    plot = Plot((0.0, end), (0.0, 1.0))
    shown = QUANTILES if has_tail else QUANTILES[:-1]
    rows, curves = [], []
    for at, (name, each) in enumerate(times.items()):
        estimates = [q for q in quantiles(each) if q.q in shown]
        known = distribution_of(name, each, [q for q in estimates if q.is_known])
        curves.append(share_curve(plot, known, series_class(at), at))
        cells = [milliseconds(q.value) if q.is_known else UNKNOWN for q in estimates]
        rows.append((name, *cells, count_of(len(each))))
    label = f"{title}: share of requests within a time"
    heads = ("ms", *(f"P{100 * q:.0f}" for q in shown), "n")
    return figure(
        title,
        f"{note}.",
        plot.draw(label, Axis("ms", labelled(ticks(0.0, end))), SHARES, curves),
        legend(list(times)) if len(times) > 1 else None,
        numbers_of(table(heads, rows, f"percentiles of {title}", {0: "short"})),
    )


def _milliseconds(records: Sequence[Record], key: str) -> list[float]:
    done = (getattr(each, key) for each in records if each.ok and not each.is_warmup)
    return [ns / 1e6 for ns in done if ns is not None]
