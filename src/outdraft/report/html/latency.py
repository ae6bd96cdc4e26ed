"""Times of best against off."""

from __future__ import annotations

from outdraft.report.figures.latency import Distribution, Latency, Quantile, latencies
from outdraft.report.html.parts import figure, folded, keys, nothing, panels, section, table
from outdraft.report.markup import Child, Markup, tag
from outdraft.report.numbers import count_of, milliseconds, times
from outdraft.report.plots.latency import latency_plot
from outdraft.tune.results import LoadResult, Results

_TITLE = "Times of best against off"


def latency_section(results: Results) -> Markup:
    main = results.main
    found = () if main is None else latencies(main)
    if main is None or not found:
        return section("times", _TITLE, None,
                       nothing("No times of both best and off are known."))  # fmt: skip
    others = [load for load in results.loads if load is not main and latencies(load)]
    return section(
        "times",
        _TITLE,
        f"At {main.name}: the share of requests that were done within each time. A curve further "
        "left is faster; the marks are P50, P95 and P99.",
        _panels(main),
        [folded(f"The same at {load.name}", _panels(load)) for load in others],
    )


def _panels(load: LoadResult) -> Markup:
    return panels(*(_figure(each) for each in latencies(load)))


def _figure(latency: Latency) -> Markup:
    beyond = ""
    if latency.num_beyond:
        beyond = f" {latency.num_beyond} of {latency.off.count + latency.best.count} requests " \
                 "took longer than the axis shows."  # fmt: skip
    return figure(
        latency.name,
        f"{latency.meaning}.{beyond}",
        latency_plot(latency, f"{latency.name} of best and off: share of requests within a time"),
        keys([("best", 0, latency.best.arm), ("off", 1, latency.off.arm)]),
        table(
            ("ms", "P50", "P95", "P99"),
            [
                _row("best", latency.best),
                _row("off", latency.off),
                (
                    "speedup",
                    *(
                        times(off.value / best.value) if best.value else "–"
                        for off, best in zip(
                            latency.off.quantiles, latency.best.quantiles, strict=True
                        )
                    ),
                ),
            ],
            f"percentiles of {latency.name}",
            {0: "short"},
        ),
    )


def _row(name: str, found: Distribution) -> list[Child]:
    return [[name, _small(count_of(found.count))], *(_quantile(each) for each in found.quantiles)]


def _quantile(found: Quantile) -> Child:
    if found.interval is None:
        return milliseconds(found.value)
    low, high = (milliseconds(each) for each in found.interval)
    return [milliseconds(found.value), _small(f"[{low}, {high}]")]


def _small(words: str) -> Markup:
    return tag("span", words, class_="ci")
