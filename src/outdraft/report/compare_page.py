"""The page of `compare`: the verdict, every ratio with its interval, times of both servers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from outdraft.decide.evidence import Evidence
from outdraft.decide.texts import counts_text
from outdraft.decide.verdict import DONT_SHIP, INCONCLUSIVE, SHIP, SHIP_FOR, Verdict
from outdraft.plan.findings import Check
from outdraft.records import Record
from outdraft.report.distributions import time_panels
from outdraft.report.layout import lead, nothing, speedup_tile, table
from outdraft.report.markup import Child, Markup, join, tag
from outdraft.report.numbers import (
    drafted_text,
    interval,
    pairs,
    percent,
    plain,
    ratio_cells,
    share,
    times,
)
from outdraft.report.one_file import Part, one_file
from outdraft.report.plot import WIDTH, Scale, labelled, ticks
from outdraft.report.sections.run import facts
from outdraft.report.svg import abbreviated, drawing, line, marker, text
from outdraft.stats.ratios import Ratio

_LOOKS = {
    SHIP: ("ship", "✓", "The candidate is faster"),
    SHIP_FOR: ("part", "◐", "The candidate is faster for a part of the traffic"),
    DONT_SHIP: ("stop", "✕", "Do not ship the candidate"),
    INCONCLUSIVE: ("open", "?", "Not proven either way"),
}
_LEFT, _RIGHT, _TOP, _ROW = 118.0, WIDTH - 14.0, 8.0, 22.0  # pixels of the picture of ratios


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """All that a page of a comparison shows."""

    baseline: str  # address or file
    candidate: str
    evidence: Evidence
    verdict: Verdict
    records: Mapping[str, Sequence[Record]]  # by arm
    settings: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    started_at: str = ""


def compare_page(run: ComparedRun) -> str:
    return one_file(
        title=f"{run.candidate} against {run.baseline}: comparison",
        kind="comparison",
        about=(run.candidate, f"against {run.baseline}"),
        started_at=run.started_at,
        first="verdict",
        card=_card(run),
        parts=list(_parts(run)),
    )


def _card(run: ComparedRun) -> Markup:
    verdict, evidence = run.verdict, run.evidence
    class_, sign, headline = _LOOKS[verdict.decision]
    parts = f": {', '.join(verdict.ship_for)}" if verdict.ship_for else ""
    parts += f"; slower for {', '.join(verdict.losers)}" if verdict.losers else ""
    tiles = [
        tag("div", tag("dt", name), tag("dd", tag("b", value), tag("span", small)))
        for name, value, small in _tiles(evidence)
    ]
    sign_of = tag("span", sign, class_="sign", aria_hidden="true")
    return tag(
        "section",
        tag(
            "div",
            tag("p", sign_of, verdict.decision, class_="decision"),
            tag("h1", f"{headline}{parts}", id="verdict-title"),
            tag("p", tag("b", run.candidate), f" against {run.baseline}.", class_="under"),
            class_="banner",
        ),
        tag("dl", tiles, class_="tiles") if tiles else None,
        tag(
            "div",
            tag("div", tag("h2", "Why"),
                tag("ul", [tag("li", each) for each in verdict.reasons], class_="reasons")),
            class_="columns",
        ),
        id="verdict",
        class_=f"card {class_}",
        aria_labelledby="verdict-title",
    )  # fmt: skip


def _tiles(evidence: Evidence) -> Iterator[tuple[str, Child, str]]:
    ratios = (("end to end", evidence.e2e), ("time per token", evidence.tpot),
              ("throughput", evidence.throughput))  # fmt: skip
    for name, ratio in ratios:
        if ratio is not None:
            yield f"speedup, {name}", speedup_tile(ratio), pairs(ratio)
    if evidence.acceptance is not None:
        drafted = drafted_text(evidence.acceptance.share_drafted)
        small = ", ".join(filter(None, ("of the candidate", drafted)))
        yield "acceptance rate", share(evidence.acceptance.rate), small


def _parts(run: ComparedRun) -> Iterator[Part]:
    yield Part("ratios", "Ratios", "Speedups", _ratios(run.evidence))
    about = lead("The share of requests that were done within a time; the markers are percentiles.")
    times_of = time_panels(run.records, has_tail=run.evidence.p99 is not None)
    yield Part("times", "Latency", "Times of both", join(about, times_of))
    if run.evidence.texts is not None:
        counts = counts_text(run.evidence.texts, run.evidence.text_floor)
        yield Part("texts", "Texts", "The same text", tag("p", counts))
    if run.verdict.checks:
        yield Part("checks", "Checks", "Checks", _checks(run.verdict.checks))
    yield Part("run", "Environment", "Environment and settings", tag(
        "div",
        tag("div", tag("h3", "Environment"), facts(run.environment)),
        tag("div", tag("h3", "Settings"), facts(run.settings)),
        class_="columns",
    ))  # fmt: skip


def _ratios(evidence: Evidence) -> Markup:
    whole = {
        "e2e": evidence.e2e,
        "e2e, all seconds": evidence.total,
        "TPOT": evidence.tpot,
        "TTFT": evidence.ttft,
        "throughput": evidence.throughput,
        "e2e P99": evidence.p99,
    }
    known = {name: ratio for name, ratio in (whole | evidence.parts).items() if ratio is not None}
    if not known:
        return nothing("No pair of requests was answered by both.")
    rows = [(name, *ratio_cells(ratio), percent(ratio.level)) for name, ratio in known.items()]
    heads = ("figure", "speedup", "interval", "pairs", "level")
    return join(
        lead("Above 1 the candidate is better. A bar is the interval; too few blocks have none."),
        ratio_plot(known),
        table(heads, rows, "speedups with their intervals", {0: "short"}),
    )  # fmt: skip


def ratio_plot(ratios: Mapping[str, Ratio]) -> Markup:
    """A row for each ratio: a dot, and its interval as a bar."""
    ends = [
        end
        for ratio in ratios.values()
        for end in (ratio.estimate, ratio.low, ratio.high)
        if end is not None
    ]
    low, high = min(0.9, *ends, 1.0), max(1.1, *ends, 1.0)
    x = Scale(low, high, _LEFT, _RIGHT)
    bottom = _TOP + _ROW * len(ratios)
    grid = [
        join(line(x.at(value), _TOP, x.at(value), bottom, "grid"),
             text(x.at(value), bottom + 15, name, "middle", "tick"))
        for value, name in labelled(ticks(low, high))
    ]  # fmt: skip
    rows = [
        _row(name, ratio, _TOP + _ROW * (at + 0.5), x)
        for at, (name, ratio) in enumerate(ratios.items())
    ]
    even = line(x.at(1.0), _TOP, x.at(1.0), bottom, "even")
    title = text(_RIGHT, bottom + 31, "speedup", "end", "title")
    return drawing(WIDTH, bottom + 36, "speedups with their intervals", grid, even, rows, title)


def _row(name: str, ratio: Ratio, y: float, x: Scale) -> Markup:
    said = f"{name}: {times(ratio.estimate)} {interval(ratio)}, {pairs(ratio)}"
    bar = None
    if ratio.low is not None and ratio.high is not None:
        bar = line(x.at(ratio.low), y, x.at(ratio.high), y, "range")
    return join(
        text(_LEFT - 10, y + 4, abbreviated(name, 18), "end", "label"),
        bar,
        marker(0, x.at(ratio.estimate), y, "dot s1", said, r=4.2),
    )


def _checks(checks: Sequence[Check]) -> Markup:
    rows = [
        (check.name.replace("_", " "), check.state, plain(check.value), check.threshold,
         check.advice)
        for check in checks
    ]  # fmt: skip
    return join(
        lead("Rules of thumb. They explain the verdict and warn; they never decide."),
        table(("check", "state", "value", "threshold", "advice"), rows, "all checks",
              {0: "label", 1: "short", 3: "words", 4: "words"}, class_="stacked"),
    )  # fmt: skip
