"""The page of `bench`: its figures, by load where there are several, and what they were made on."""

from collections.abc import Iterator, Mapping, Sequence

from outdraft.decide.evidence import AcceptanceSummary
from outdraft.measure.bench import Bench, BenchLoad
from outdraft.measure.summary import QuantileEstimate
from outdraft.report.bench_tables import bench_notes
from outdraft.report.distributions import time_panels
from outdraft.report.layout import figure, lead, legend, nothing, panels, table, two_lines
from outdraft.report.markup import Child, Markup, join, tag
from outdraft.report.numbers import (
    UNKNOWN,
    count_of,
    drafted_text,
    milliseconds,
    percent,
    rate,
    share,
)
from outdraft.report.one_file import Part, one_file
from outdraft.report.plot import Axis, Mark, Plot, labelled, named_ticks, ticks
from outdraft.report.sections.run import facts
from outdraft.report.svg import series_class
from outdraft.report.tables import gpu_lines

Curves = dict[str, list[float | None]]  # a value for each load, by the curve's name
_LOADS = (
    "Each load was measured by itself, one after the other. Requests and tokens a second are those "
    "of the time in which all of the load ran; times are P50 and P95 over its requests."
)


def bench_page(bench: Bench) -> str:
    best = _best(bench)
    environment = best.trial.environment
    engine = " ".join(filter(None, (environment.get("server_engine"),
                                    environment.get("server_version"))))  # fmt: skip
    return one_file(
        title=f"{best.trial.url}: bench",
        kind="bench",
        about=(best.trial.url, engine or "an unknown engine"),
        started_at=bench.loads[0].trial.started_at,
        first="figures",
        card=_card(bench, best),
        parts=list(_parts(bench)),
    )


def _best(bench: Bench) -> BenchLoad:
    """The load of the figures on top: where it is saturated, else with the most tokens a second."""
    saturation = bench.saturation
    at = [each for each in bench.loads if saturation is not None and each.size == saturation.at]
    valid = [each for each in bench.loads if each.trial.is_valid] or bench.loads
    return at[0] if at else max(valid, key=lambda each: each.summary.tokens_per_s)


def _card(bench: Bench, best: BenchLoad) -> Markup:
    tiles = [
        tag("div", tag("dt", name), tag("dd", tag("b", value), tag("span", small)))
        for name, value, small in _tiles(best)
    ]
    title = f"{rate(best.summary.tokens_per_s)} tokens a second at {best.name}"
    words = "" if bench.saturation is None else f"{bench.saturation.words}."
    invalid = None if bench.is_valid else "These figures are not the server's: see the notes."
    return tag(
        "section",
        tag(
            "div",
            tag("p", "INVALID", class_="decision") if invalid else None,
            tag("h1", title, id="figures-title"),
            tag("p", words[:1].upper() + words[1:], class_="under") if words else None,
            tag("p", invalid, class_="under") if invalid else None,
            class_="banner",
        ),
        tag("dl", tiles, class_="tiles"),
        id="figures",
        class_="card stop" if invalid else "card",
        aria_labelledby="figures-title",
    )


def _tiles(load: BenchLoad) -> Iterator[tuple[str, Child, str]]:
    """(name, value, small print)"""
    summary = load.summary
    for name, times in (("TTFT", summary.ttft), ("TPOT", summary.tpot), ("e2e", summary.e2e)):
        if times:
            value = [milliseconds(times[0].value), tag("small", "ms")]
            yield f"{name}, median", value, _interval(times[0]) or count_of(summary.num_requests)
    failed = f"{summary.num_errors:,} failed" if summary.num_errors else "none failed"
    yield (
        "requests a second",
        rate(summary.requests_per_s),
        (f"{count_of(summary.num_requests)}, {failed}"),
    )
    if summary.goodput_per_s is not None:
        yield "goodput", rate(summary.goodput_per_s), "requests a second within the SLO"
    if summary.acceptance is not None:
        length = summary.acceptance.length
        drafted = drafted_text(summary.acceptance.share_drafted)
        small = "" if length is None else f"acceptance length {length:.2f}"
        small = ", ".join(filter(None, (small, drafted)))
        yield "acceptance rate", share(summary.acceptance.rate), small


def _parts(bench: Bench) -> Iterator[Part]:
    if len(bench.loads) > 1:
        yield Part("loads", "Loads", "By load", _loads(bench.loads))
    yield Part("times", "Latency", "Times of the requests", _times(bench.loads))
    if any(each.summary.turns for each in bench.loads):
        yield Part("turns", "Turns", "By turn of a session", _turns(bench.loads))
    if any(each.summary.acceptance is not None for each in bench.loads):
        yield Part("acceptance", "Acceptance", "Acceptance", _acceptance(bench.loads))
    yield Part("server", "Server", "What the server said meanwhile", _server(bench.loads))
    yield Part("run", "Environment", "Notes, environment and settings", _run(bench))


def _loads(loads: Sequence[BenchLoad]) -> Markup:
    written: Curves = {"tokens/s": [each.summary.tokens_per_s for each in loads]}
    figures = [_by_load(loads, "Tokens a second", "tokens/s", written)]
    for title, key in (("TTFT", "ttft"), ("TPOT", "tpot"), ("e2e", "e2e")):
        times: Curves = {
            name: [_value(getattr(each.summary, key), at) for each in loads]
            for at, name in enumerate(("P50", "P95"))
        }
        figures.append(_by_load(loads, title, "ms", times))
    return join(lead(_LOADS), panels(*figures), _table(loads))


def _by_load(loads: Sequence[BenchLoad], title: str, unit: str, curves: Curves) -> Markup:
    names = [f"{each.size:g}" if each.size is not None else each.name for each in loads]
    top = 1.08 * max((each or 0.0 for values in curves.values() for each in values), default=1.0)
    plot = Plot((-0.35, len(loads) - 0.65), (0.0, top or 1.0))
    drawn = [
        plot.curve(
            [
                Mark(float(at), value, f"{name} at {loads[at].name}: {value:,.1f} {unit}")
                for at, value in enumerate(values)
                if value is not None
            ],
            series_class(index),
            index,
        )
        for index, (name, values) in enumerate(curves.items())
    ]
    is_rate = "rate" in loads[0].trial.load
    x = Axis("requests a second" if is_rate else "requests at a time", named_ticks(names))
    y = Axis(unit, labelled(ticks(0.0, top)))
    names_of = legend(list(curves)) if len(curves) > 1 else None
    return figure(title, None, plot.draw(f"{title} by load", x, y, drawn), names_of)


def _table(loads: Sequence[BenchLoad]) -> Markup:
    heads = ("load", "requests", "requests/s", "tokens/s", "TTFT P50", "P95", "TPOT P50", "P95",
             "e2e P50", "P95", "acceptance")  # fmt: skip
    rows: list[list[Child]] = []
    for load in loads:
        summary, acceptance = load.summary, load.summary.acceptance
        failed = f" ({summary.num_errors:,} failed)" if summary.num_errors else ""
        cells: list[Child] = [
            load.name if load.trial.is_valid else f"{load.name} (invalid)",
            f"{summary.num_requests:,}{failed}",
            rate(summary.requests_per_s),
            rate(summary.tokens_per_s),
        ]
        for times in (summary.ttft, summary.tpot, summary.e2e):
            cells += [_milliseconds(times, at) for at in (0, 1)]
        rows.append([*cells, UNKNOWN if acceptance is None else _rate_of(acceptance)])
    return table(heads, rows, "figures by load, times in ms", {0: "short"})


def _times(loads: Sequence[BenchLoad]) -> Markup:
    return join(
        lead("The share of requests that were done within a time; the markers are percentiles."),
        time_panels({each.name: each.trial.records for each in loads}),
    )


def _turns(loads: Sequence[BenchLoad]) -> Markup:
    heads = ("turn", "requests", "tokens of the prompt", "of these cached", "TTFT P50", "P95",
             "TPOT P50", "P95")  # fmt: skip
    tables = []
    for load in loads:
        rows = [
            [
                f"{each.turn}",
                f"{each.num_requests:,}",
                rate(each.mean_prompt_tokens),
                rate(each.mean_cached_tokens),
                *(_milliseconds(times, at) for times in (each.ttft, each.tpot) for at in (0, 1)),
            ]
            for each in load.summary.turns
        ]
        title = tag("h3", load.name) if len(loads) > 1 else None
        tables.append(join(title, table(heads, rows, f"turns at {load.name}")))
    return join(lead("A turn has in its prompt all that was said before it. Times in ms."), tables)


def _acceptance(loads: Sequence[BenchLoad]) -> Markup:
    found = [(each, each.summary.acceptance) for each in loads]
    rows = [
        (load.name, _rate_of(each), share(each.length), share(each.p10), share(each.p50),
         share(each.p90), count_of(each.num_requests))
        for load, each in found
        if each is not None
    ]  # fmt: skip
    names = [load.name for load, _ in found]
    kinds = {
        "category": [{} if each is None else each.by_category for _, each in found],
        "temperature": [{} if each is None else each.by_temperature for _, each in found],
    }
    parts = [_rates(kind, names, rates) for kind, rates in kinds.items() if any(rates)]
    return join(
        lead("Accepted / proposed draft tokens, and tokens per round that proposed something."),
        table(("load", "rate", "length", "P10", "P50", "P90", "requests"), rows,
              "acceptance by load", {0: "short"}),
        parts,
    )  # fmt: skip


def _rate_of(acceptance: AcceptanceSummary) -> Child:
    return two_lines(share(acceptance.rate), drafted_text(acceptance.share_drafted))


def _rates(kind: str, loads: Sequence[str], rates: Sequence[Mapping[str, float]]) -> Markup:
    names = list(dict.fromkeys(name for each in rates for name in each))
    rows = [(name, *(share(each.get(name)) for each in rates)) for name in names]
    return table((kind, *loads), rows, f"acceptance by {kind}", {0: "short"})


def _server(loads: Sequence[BenchLoad]) -> Markup:
    rows = []
    for load in loads:
        said = load.trial.server_metrics
        usage, running = said.get("kv_cache_usage_max"), said.get("running_requests_mean")
        gpus = "; ".join(gpu_lines(said))
        if usage is not None or running is not None or gpus:
            rows.append((load.name, percent(usage), rate(running), gpus or UNKNOWN))
    if not rows:
        return nothing("The server has no metrics page, and no GPU was seen beside it.")
    heads = ("load", "KV cache in use at most", "requests running, mean", "GPU")
    return table(heads, rows, "the server by load", {0: "short", 3: "words"})


def _run(bench: Bench) -> Markup:
    notes, first = bench_notes(bench), bench.loads[0].trial
    hidden = {"concurrency", "rate", "requests"} if len(bench.loads) > 1 else set()
    settings = {key: value for key, value in first.load.items() if key not in hidden}
    return join(
        lead("What this was measured on. Elsewhere the numbers may differ."),
        tag("ul", [tag("li", note) for note in notes], class_="notes") if notes else None,
        tag(
            "div",
            tag("div", tag("h3", "Environment"), facts(first.environment)),
            tag("div", tag("h3", "Settings"), facts(settings)),
            class_="columns",
        ),
    )


def _value(times: Sequence[QuantileEstimate], at: int) -> float | None:
    return times[at].value if len(times) > at else None


def _milliseconds(times: Sequence[QuantileEstimate], at: int) -> str:
    value = _value(times, at)
    return UNKNOWN if value is None else milliseconds(value)


def _interval(quantile: QuantileEstimate) -> str:
    if quantile.low is None or quantile.high is None:
        return ""
    return f"[{milliseconds(quantile.low)}, {milliseconds(quantile.high)}], 95 % interval"
