"""The card at the top: the decision, its evidence, its reasons, what to do next."""

import tomllib
from collections.abc import Iterator, Sequence
from importlib.resources import files as resources

from outdraft.decide.verdict import INCONCLUSIVE, Verdict
from outdraft.report.layout import folded, speedup_tile
from outdraft.report.markup import Child, Markup, tag
from outdraft.report.numbers import (
    count_of,
    drafted_text,
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
from outdraft.tune.answer import Finding, LoadAnswer, RangeAnswer, answer_of
from outdraft.tune.files import carried_over, caveat
from outdraft.tune.results import SOURCES, LoadResult, Results
from outdraft.tune.wording import details, does_text, headline, loads_text, why_text

_TEXTS: dict[str, dict[str, str]] = tomllib.loads(
    resources("outdraft.report.sections").joinpath("verdict.toml").read_text(encoding="utf-8")
)
FILES = _TEXTS["files"]  # that may be beside the page, and what each is for
_MOST_REASONS = 3  # about parts of the traffic; more are folded


def verdict_card(results: Results, files: Sequence[str]) -> Markup:
    answer, load = answer_of(results), results.main
    verdict = None if load is None else load.verdict
    decision = INCONCLUSIVE if verdict is None else verdict.decision
    texts = _TEXTS[answer.advice]
    tiles = [
        tag("div", tag("dt", name), tag("dd", tag("b", value), tag("span", small)))
        for name, value, small in _tiles(results, load)
    ]
    here = None if load is None else tag("span", f"at {loads_text([load])}", class_="at")
    ended = "" if results.is_complete else ". The time budget ended before all of it was clear"
    judged = f", judged by {objective_name(results.objective)}"
    basis = f" on the {results.backend} backend{judged}{ended}."
    return tag(
        "section",
        tag(
            "div",
            tag("p", tag("span", texts["sign"], class_="sign", aria_hidden="true"), decision, here,
                class_="decision"),
            tag("h1", headline(answer), id="verdict-title"),
            tag("p", tag("b", results.target), basis, class_="under"),
            _range(answer),
            class_="banner",
        ),
        tag("div", tag("code", best_line(results)), class_="line scroll", role="region",
            aria_label="the best configuration in one line", tabindex="0"),
        tag("dl", tiles, class_="tiles"),
        tag("div", _reasons(verdict), _next_steps(texts["next"], files, results, answer),
            class_="columns"),
        id="verdict",
        class_=f"card {texts['class']}",
        aria_labelledby="verdict-title",
    )  # fmt: skip


def _range(answer: RangeAnswer) -> list[Markup | None]:
    """What is recommended at each load, the smallest first, and what has to be known of it."""
    steps = [
        tag(
            "li",
            tag("span", loads_text([each.load]), class_="at"),
            tag("b", does_text(each)),
            tag("span", why_text(each)),
            tag("span", *_speedup(each)) if each.speedup is not None else None,
            class_=_class_of(each),
        )
        for each in answer.loads
    ]
    told = [tag("li", sentence) for sentence in details(answer)]
    return [
        tag("ol", steps, class_="steps") if len(steps) > 1 else None,
        tag("ul", told, class_="details") if told else None,
    ]


def _class_of(answer: LoadAnswer) -> str:
    if not answer.is_on:
        return "off"
    return "unsure" if answer.finding is Finding.UNMEASURED else "on"


def _speedup(answer: LoadAnswer) -> list[str]:
    ratio = answer.speedup
    return [] if ratio is None else [f"{times(ratio.estimate)} {interval(ratio)}"]


def _tiles(results: Results, load: LoadResult | None) -> Iterator[tuple[str, Child, str]]:
    """(name, value, small print)"""
    best = None if load is None else load.best_arm
    off = None if load is None else load.off
    if best is not None and best.measured is not None:
        ratio = best.measured
        level = "" if ratio.low is None else f", {percent(ratio.level)} interval"
        name = f"speedup over off ({objective_name(results.objective)})"
        yield name, speedup_tile(ratio), f"{pairs(ratio)}{level}"
    if best is not None and best.acceptance_rate is not None:
        length = best.acceptance_length
        more = "" if length is None else f"acceptance length {length:.2f}, "
        rate_of_best = share(best.acceptance_rate)
        source = SOURCES.get(best.acceptance_source, "")
        drafted = drafted_text(best.share_drafted)
        small = ", ".join(filter(None, (f"{more}{count_of(best.num_requests)}", drafted, source)))
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
    reasons = reasons or ("no arm was compared with off",)
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


def _next_steps(advice: str, files: Sequence[str], results: Results, answer: RangeAnswer) -> Markup:
    present = [name for name in FILES if name in files]
    elsewhere = [name for name in present if carried_over(results, name)]
    groups = (
        ("Beside this page", [name for name in present if name not in elsewhere]),
        (f"For engines that were not measured ({caveat(results)})", elsewhere),
    )
    return tag(
        "div",
        tag("h2", "What to do next"),
        tag("p", advice),
        [_files(heading, names, answer) for heading, names in groups if names],
    )


def _files(heading: str, names: Sequence[str], answer: RangeAnswer) -> list[Markup]:
    is_off = answer.settings.is_off and any(name != "results.json" for name in names)
    links = [tag("li", tag("a", tag("code", name), href=name), f" {FILES[name]}") for name in names]
    return [
        tag("p", f"{heading}{', with speculation left off' if is_off else ''}:"),
        tag("ul", links, class_="files"),
    ]
