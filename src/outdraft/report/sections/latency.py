"""Latency of best and off: cumulative distributions over the requests, with percentiles."""

from collections.abc import Sequence
from dataclasses import dataclass

from outdraft.measure.summary import QUANTILES, QuantileEstimate, quantiles
from outdraft.report.distributions import (
    SHARES,
    Distribution,
    axis_end,
    distribution_of,
    share_curve,
)
from outdraft.report.layout import figure, folded, keys, lead, nothing, panels, table, two_lines
from outdraft.report.markup import Child, Markup, join, tag
from outdraft.report.numbers import UNKNOWN, count_of, milliseconds, ratio_cells, times
from outdraft.report.plot import Axis, Plot, labelled, ticks
from outdraft.report.svg import line, text
from outdraft.stats.ratios import Ratio
from outdraft.tune.results import ArmResult, LoadResult, Results

_NO_TAIL = "No P99: there are too few requests for one."
_TAIL_CHECK = "tail"  # of a verdict: it has one where there are enough pairs for a P99
_KINDS = (
    ("TPOT", "time per output token after the first", "tpot_ms"),
    ("e2e", "from the time a request was due to its last token", "e2e_ms"),
    ("TTFT", "from the time a request was due to its first token", "ttft_ms"),
)


@dataclass(frozen=True, slots=True)
class Latency:
    """One kind of time, of both arms."""

    name: str  # "TPOT"
    meaning: str
    off: Distribution
    best: Distribution
    end: float  # ms where the axis ends
    num_beyond: int  # requests that took longer than that
    pairs: Ratio | None = None  # speedup of the same requests; what verdict and checks use


def latency_section(results: Results) -> Markup:
    timed = [load for load in results.loads if latencies(load)]
    if not timed:
        return nothing("There are no times of both best and off.")
    first, *others = sorted(timed, key=lambda load: load is not results.main)
    return join(
        lead(
            f"At {first.name}: the share of requests that were done within a time. A curve further "
            "to the left is faster; the markers are percentiles. Verdict and checks use the pairs: "
            "each request beside the same one with off."
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
    has_tail = load.verdict is None or any(
        check.name == _TAIL_CHECK for check in load.verdict.checks
    )
    for name, meaning, key in _KINDS:
        times_of_off, times_of_best = getattr(off, key), getattr(best, key)
        if times_of_off and times_of_best:
            before, after = _distributions(
                (off, times_of_off), (best, times_of_best), has_tail=has_tail
            )
            end = axis_end(times_of_off, times_of_best)
            num_beyond = sum(ms > end for ms in (*times_of_off, *times_of_best))
            pairs = best.ratios.get(key.removesuffix("_ms"))
            kinds.append(Latency(name, meaning, before, after, end, num_beyond, pairs))
    return tuple(kinds)


def _distributions(
    *arms: tuple[ArmResult, Sequence[float]], has_tail: bool
) -> tuple[Distribution, ...]:
    """With the percentiles that all arms have. `has_tail`: the verdict knows of a P99."""
    estimates = [quantiles(times_ms) for _, times_ms in arms]
    last = QUANTILES[-1]
    shown = [
        at
        for at, q in enumerate(QUANTILES)
        if all(each[at].is_known for each in estimates) and (q != last or has_tail)
    ]
    return tuple(
        distribution_of(arm.name, times_ms, [each[at] for at in shown])
        for (arm, times_ms), each in zip(arms, estimates, strict=True)
    )


def _panels(load: LoadResult) -> Markup:
    return panels(*(_figure(latency, load) for latency in latencies(load)))


def _figure(latency: Latency, load: LoadResult) -> Markup:
    off, best = latency.off, latency.best
    note = f"{latency.meaning}."
    if latency.num_beyond:
        total = off.count + best.count
        note += f" {latency.num_beyond} of {total} requests took longer than the axis shows."
    ratios = [
        times(a.value / b.value) if b.value else UNKNOWN
        for a, b in zip(off.quantiles, best.quantiles, strict=True)
    ]
    has_tail = best.quantiles[-1].q == QUANTILES[-1]
    rows = [
        [two_lines(name, count_of(each.count)), *map(_quantile, each.quantiles)]
        for name, each in (("best", best), ("off", off))
    ]
    below = [] if latency.pairs is None else [pairs_text(latency.pairs)]
    below += [] if has_tail else [_NO_TAIL]
    return figure(
        latency.name,
        note,
        latency_plot(latency),
        keys([("best", 0, best.name), ("off", 1, off.name)]),
        table(
            ("ms", *(f"P{100 * each.q:.0f}" for each in best.quantiles)),
            [*rows, ["off / best", *ratios]],
            f"percentiles of {latency.name} at {load.name}",
            {0: "short"},
        ),
        tag("p", " ".join(below), class_="pairs") if below else None,
    )


def pairs_text(ratio: Ratio) -> str:
    """The speedup that the verdict and its checks speak of."""
    speedup, interval, count = ratio_cells(ratio)
    return f"Pairs: speedup {speedup} {interval}, {count}."


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
        SHARES,
        share_curve(plot, latency.off, "off", 1),
        share_curve(plot, latency.best, "best", 0),
        _medians(plot, latency),
    )


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
