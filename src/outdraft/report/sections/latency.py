"""Latency of best and off: cumulative distributions over the requests, with percentiles."""

from collections.abc import Sequence
from dataclasses import dataclass

from outdraft.measure.summary import QuantileEstimate, quantiles
from outdraft.report.layout import figure, folded, keys, lead, nothing, panels, table, two_lines
from outdraft.report.markup import Child, Markup, join
from outdraft.report.numbers import UNKNOWN, count_of, milliseconds, times
from outdraft.report.plot import Axis, Plot, labelled, ticks
from outdraft.report.svg import line, marker, path, text
from outdraft.tune.results import ArmResult, LoadResult, Results

_MOST_POINTS = 160  # of a curve; more make no visible difference
_SHARES = Axis("share of requests within", [(0.0, "0"), (0.5, "P50"), (0.95, "P95"), (1.0, "")])
_KINDS = (
    ("TPOT", "time per output token after the first", "tpot_ms"),
    ("e2e", "from the time a request was due to its last token", "e2e_ms"),
    ("TTFT", "from the time a request was due to its first token", "ttft_ms"),
)


@dataclass(frozen=True, slots=True)
class Distribution:
    arm: str
    count: int
    points: tuple[tuple[float, float], ...]  # (ms, share of the requests within it)
    quantiles: tuple[QuantileEstimate, ...]


@dataclass(frozen=True, slots=True)
class Latency:
    """One kind of time, of both arms."""

    name: str  # "TPOT"
    meaning: str
    off: Distribution
    best: Distribution
    end: float  # ms where the axis ends
    num_beyond: int  # requests that took longer than that


def latency_section(results: Results) -> Markup:
    timed = [load for load in results.loads if latencies(load)]
    if not timed:
        return nothing("There are no times of both best and off.")
    first, *others = sorted(timed, key=lambda load: load is not results.main)
    return join(
        lead(
            f"At {first.name}: the share of requests that were done within a time. A curve further "
            "to the left is faster; the markers are P50, P95 and P99."
        ),
        _panels(first),
        [folded(f"The same at {load.name}", _panels(load)) for load in others],
    )


def latencies(load: LoadResult) -> tuple[Latency, ...]:
    """Every kind of time that both arms have."""
    off, best = load.off, load.best_arm
    if off is None or best is None:
        return ()
    kinds = []
    for name, meaning, key in _KINDS:
        times_of_off, times_of_best = getattr(off, key), getattr(best, key)
        if times_of_off and times_of_best:
            both = _distribution(off, times_of_off), _distribution(best, times_of_best)
            end = 1.06 * max(each.quantiles[-1].value for each in both)
            num_beyond = sum(ms > end for ms in (*times_of_off, *times_of_best))
            kinds.append(Latency(name, meaning, *both, end, num_beyond))
    return tuple(kinds)


def _distribution(arm: ArmResult, times_ms: Sequence[float]) -> Distribution:
    ordered = sorted(times_ms)
    count = len(ordered)
    step = -(-count // _MOST_POINTS)
    points = [(ordered[at], (at + 1) / count) for at in range(0, count, step)]
    if points[-1][1] < 1:
        points.append((ordered[-1], 1.0))
    return Distribution(arm.name, count, tuple(points), quantiles(ordered))


def _panels(load: LoadResult) -> Markup:
    return panels(*(_figure(latency) for latency in latencies(load)))


def _figure(latency: Latency) -> Markup:
    off, best = latency.off, latency.best
    note = f"{latency.meaning}."
    if latency.num_beyond:
        total = off.count + best.count
        note += f" {latency.num_beyond} of {total} requests took longer than the axis shows."
    ratios = [
        times(a.value / b.value) if b.value else UNKNOWN
        for a, b in zip(off.quantiles, best.quantiles, strict=True)
    ]
    rows = [
        [two_lines(name, count_of(each.count)), *map(_quantile, each.quantiles)]
        for name, each in (("best", best), ("off", off))
    ]
    return figure(
        latency.name,
        note,
        latency_plot(latency),
        keys([("best", 0, best.arm), ("off", 1, off.arm)]),
        table(
            ("ms", "P50", "P95", "P99"),
            [*rows, ["speedup", *ratios]],
            f"percentiles of {latency.name}",
            {0: "short"},
        ),
    )


def _quantile(quantile: QuantileEstimate) -> list[Child]:
    interval = None
    if quantile.low is not None and quantile.high is not None:
        interval = f"[{milliseconds(quantile.low)}, {milliseconds(quantile.high)}]"
    return two_lines(milliseconds(quantile.value), interval)


def latency_plot(latency: Latency) -> Markup:
    plot = Plot((0.0, latency.end), (0.0, 1.0))
    return plot.draw(
        f"{latency.name} of best and off: share of requests within a time",
        Axis("ms", labelled(ticks(0.0, latency.end))),
        _SHARES,
        _curve(plot, latency.off, "off", 1),
        _curve(plot, latency.best, "best", 0),
        _medians(plot, latency),
    )


def _curve(plot: Plot, times_of: Distribution, class_: str, shape: int) -> list[Markup]:
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
            f"{times_of.arm}: P{100 * each.q:.0f} {milliseconds(each.value)} ms "
            f"({count_of(times_of.count)})",
        )
        for each in times_of.quantiles
    ]
    return [path(steps, f"curve {class_}"), *dots]


def _medians(plot: Plot, latency: Latency) -> list[Markup]:
    """A line from each median down to the axis, with its value where there is room for both."""
    medians = {"off": latency.off.quantiles[0].value, "best": latency.best.quantiles[0].value}
    places = {name: plot.x.at(value) for name, value in medians.items()}
    parts = [line(x, plot.y.at(0.5), x, plot.bottom, f"drop {name}") for name, x in places.items()]
    if abs(places["off"] - places["best"]) > 40:
        parts += [
            text(x + 5, plot.bottom - 6, milliseconds(medians[name]), "start", f"value {name}")
            for name, x in places.items()
        ]
    return parts
