"""The card at the top: the decision, its evidence, its reasons, what to do next."""

import tomllib
from collections.abc import Iterator, Sequence
from importlib.resources import files as resources

from outdraft.decide.verdict import INCONCLUSIVE, Verdict
from outdraft.report.layout import folded
from outdraft.report.markup import Child, Markup, tag
from outdraft.report.numbers import (
    count_of,
    duration,
    interval,
    milliseconds,
    objective_name,
    pairs,
    percent,
    rate,
    share,
    times,
)
from outdraft.report.tables import best_line
from outdraft.stats.percentiles import percentile
from outdraft.tune.results import SOURCES, LoadResult, Results

_TEXTS: dict[str, dict[str, str]] = tomllib.loads(
    resources("outdraft.report.sections").joinpath("verdict.toml").read_text(encoding="utf-8")
)
FILES = _TEXTS["files"]  # that may be beside the page, and what each is for
_MOST_REASONS = 3  # about parts of the traffic; more are folded


def verdict_card(results: Results, files: Sequence[str]) -> Markup:
    load = results.main
    verdict = None if load is None else load.verdict
    decision = INCONCLUSIVE if verdict is None else verdict.decision
    texts = _TEXTS["nothing_measured" if verdict is None else decision]
    parts = "" if verdict is None else ", ".join(verdict.ship_for)
    is_on = load is not None and load.pays_for_all
    tiles = [
        tag("div", tag("dt", name), tag("dd", tag("b", value), tag("span", small)))
        for name, value, small in _tiles(results, load)
    ]
    at = "" if load is None else f", at {load.name}"
    ended = "" if results.is_complete else ". The time budget ended before the result was clear"
    judged = f", judged by {objective_name(results.objective)}"
    basis = f" on the {results.backend} backend{at}{judged}{ended}."
    return tag(
        "section",
        tag(
            "div",
            tag("p", tag("span", texts["sign"], class_="sign", aria_hidden="true"), decision,
                class_="decision"),
            tag("h1", texts["headline"], f": {parts}" if parts else None, id="verdict-title"),
            tag("p", tag("b", results.target), basis, class_="under"),
            class_="banner",
        ),
        tag("div", tag("code", best_line(results)), class_="line scroll", role="region",
            aria_label="the best configuration in one line", tabindex="0"),
        tag("dl", tiles, class_="tiles"),
        tag("div", _reasons(verdict), _next_steps(texts["advice"], files, is_on), class_="columns"),
        id="verdict",
        class_=f"card {texts['class']}",
        aria_labelledby="verdict-title",
    )  # fmt: skip


def _tiles(results: Results, load: LoadResult | None) -> Iterator[tuple[str, Child, str]]:
    """(name, value, small print)"""
    best = None if load is None else load.best_arm
    off = None if load is None else load.off
    if best is not None and best.measured is not None:
        ratio = best.measured
        level = "" if ratio.low is None else f", {percent(ratio.level)} interval"
        speedup = [times(ratio.estimate), tag("small", interval(ratio))]
        name = f"speedup over off ({objective_name(results.objective)})"
        yield name, speedup, f"{pairs(ratio)}{level}"
    if best is not None and best.acceptance_rate is not None:
        length = best.acceptance_length
        more = "" if length is None else f"acceptance length {length:.2f}, "
        rate_of_best = share(best.acceptance_rate)
        source = SOURCES.get(best.acceptance_source, "")
        small = f"{more}{count_of(best.num_requests)}{f', {source}' if source else ''}"
        yield "acceptance rate", rate_of_best, small
    if off is not None and best is not None and off.tpot_ms and best.tpot_ms:
        before, after = (milliseconds(percentile(arm.tpot_ms, 0.5)) for arm in (off, best))
        counts = f"off {count_of(len(off.tpot_ms))}, best {count_of(len(best.tpot_ms))}"
        yield "time per token, median", [f"{before} → {after}", tag("small", "ms")], counts
    elif off is not None and best is not None and None not in (off.tokens_per_s, best.tokens_per_s):
        speeds = f"{rate(off.tokens_per_s)} → {rate(best.tokens_per_s)}"
        counts = f"off {count_of(off.num_requests)}, best {count_of(best.num_requests)}"
        yield "tokens per second", speeds, counts
    arms = {arm.name for load in results.loads for arm in load.arms if arm.num_requests}
    effort = f"{_plural(len(arms), 'arm')}, {_plural(len(results.loads), 'load')}"
    spent = f"{effort}, {duration(results.duration_s)}"
    yield "requests measured", f"{results.num_requests:,}", spent


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _reasons(verdict: Verdict | None) -> Markup:
    reasons = () if verdict is None else verdict.reasons
    reasons = reasons or ("nothing could be measured against off",)
    parts = [each for each in reasons if each.startswith(("category ", "temperature "))]
    if len(parts) <= _MOST_REASONS:
        parts = []
    more = folded(f"{len(parts)} parts of the traffic, one by one", _bullets(parts))
    return tag(
        "div",
        tag("h2", "Why"),
        _bullets([each for each in reasons if each not in parts]),
        more if parts else None,
    )


def _bullets(reasons: Sequence[str]) -> Markup:
    return tag("ul", [tag("li", each) for each in reasons], class_="reasons")


def _next_steps(advice: str, files: Sequence[str], is_on: bool) -> Markup:
    """`is_on`: whether the configurations among the files turn speculation on."""
    present = [name for name in FILES if name in files]
    is_off = not is_on and any(name != "results.json" for name in present)
    heading = f"Beside this page{', with speculation left off' if is_off else ''}:"
    links = [
        tag("li", tag("a", tag("code", name), href=name), f" {FILES[name]}") for name in present
    ]
    return tag(
        "div",
        tag("h2", "What to do next"),
        tag("p", advice),
        [tag("p", heading), tag("ul", links, class_="files")] if present else None,
    )
