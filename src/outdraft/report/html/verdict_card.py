"""The card on top: what was decided, how sure that is, what to do next."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from outdraft.decide.verdict import DONT_SHIP, INCONCLUSIVE, SHIP, SHIP_FOR
from outdraft.report.figures.arms import off_of
from outdraft.report.html.parts import folded
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
from outdraft.report.tune_table import best_line, best_of
from outdraft.stats import Ratio, percentile
from outdraft.tune.results import ArmResult, LoadResult, Results
from outdraft.tune.routing import pays_for_all

# decision: (class, sign, headline)
_LOOKS = {
    SHIP: ("ship", "✓", "Turn speculation on"),
    SHIP_FOR: ("part", "◐", "Turn speculation on for a part of the traffic"),
    DONT_SHIP: ("stop", "✕", "Leave speculation off"),
    INCONCLUSIVE: ("open", "?", "Not proven either way"),
}
_NOTHING = ("open", "?", "Nothing could be measured")

# What may lie beside the page, and what it is for.
FILES = {
    "vllm.sh": "starts vLLM",
    "vllm.json": "the same as data: command, config, reasons",
    "sglang.sh": "starts SGLang",
    "llama-server.sh": "starts llama.cpp's server",
    "outdraft.toml": "for outdraft's own server",
    "results.json": "every number of this page",
}

_NEXT = {
    SHIP: "Roll it out with the file of your engine, and keep watching whether it pays.",
    SHIP_FOR: "No engine switches speculation by the kind of a request: send the parts named above "
    "to a server of their own that has it on, and the rest to one that has it off.",
    DONT_SHIP: "Leave speculation off under this load. A better draft or a lower load may change "
    "that; the checks below say where it fails.",
    INCONCLUSIVE: "Do not roll this out on this evidence. The reasons above say what is missing; "
    "with a larger budget the run goes on from where it stopped.",
}
_MEND = "Every arm below says why it failed. Mend that, then run it again."
_CONFIGURED = tuple(name for name in FILES if name != "results.json")


def verdict_card(results: Results, files: Sequence[str]) -> Markup:
    load = results.main
    verdict = None if load is None else load.verdict
    decision = INCONCLUSIVE if verdict is None else str(verdict["decision"])
    class_, sign, headline = _NOTHING if verdict is None else _LOOKS.get(decision, _NOTHING)
    chosen = [] if verdict is None else [str(each) for each in verdict.get("ship_for", ())]
    return tag(
        "section",
        tag(
            "div",
            tag("p", tag("span", sign, class_="sign", aria_hidden="true"), decision,
                class_="decision"),
            tag("h1", headline, f": {', '.join(chosen)}" if chosen else None, id="verdict-title"),
            tag("p", _under(results, load), class_="under"),
            class_="banner",
        ),
        tag("div", tag("code", best_line(results)), class_="line scroll", role="region",
            aria_label="the best configuration in one line", tabindex="0"),
        _tiles(results, load),
        tag(
            "div",
            _reasons(verdict),
            _next(
                _MEND if verdict is None else _NEXT.get(decision, _MEND),
                files,
                is_on=load is not None and pays_for_all(load),
            ),
            class_="columns",
        ),
        id="verdict",
        class_=f"card {class_}",
        aria_labelledby="verdict-title",
    )  # fmt: skip


def _under(results: Results, load: LoadResult | None) -> list[Child]:
    words: list[Child] = [tag("b", results.target), f" on the {results.backend} backend"]
    if load is not None:
        words.append(f", at {load.name}")
    words.append(f", judged by {objective_name(results.objective)}")
    if not results.is_complete:
        words.append(". The budget ended before all was clear")
    return [*words, "."]


def _tiles(results: Results, load: LoadResult | None) -> Markup:
    best = None if load is None else best_of(load)
    off = None if load is None else off_of(load)
    return tag("dl", [*_best_tiles(results, best), *_time_tiles(off, best), _effort(results)],
               class_="tiles")  # fmt: skip


def _tile(name: str, value: Child, small: str) -> Markup:
    return tag("div", tag("dt", name), tag("dd", tag("b", value), tag("span", small)))


def _best_tiles(results: Results, best: ArmResult | None) -> Iterator[Markup]:
    if best is None:
        return
    if best.measured is not None:
        yield _tile(
            f"speedup over off ({objective_name(results.objective)})",
            [times(best.measured.estimate), tag("small", interval(best.measured))],
            f"{pairs(best.measured)}{_level(best.measured)}",
        )
    if best.acceptance_rate is not None:
        length = best.acceptance_length
        more = "" if length is None else f"{length:.2f} tokens a round, "
        yield _tile(
            "acceptance rate",
            share(best.acceptance_rate),
            f"{more}{count_of(best.num_requests)}",
        )


def _level(ratio: Ratio) -> str:
    return "" if ratio.low is None else f", {percent(ratio.level)} interval"


def _time_tiles(off: ArmResult | None, best: ArmResult | None) -> Iterator[Markup]:
    if off is None or best is None:
        return
    if off.tpot_ms and best.tpot_ms:
        yield _tile(
            "time per token, median",
            [
                f"{milliseconds(percentile(off.tpot_ms, 0.5))} → "
                f"{milliseconds(percentile(best.tpot_ms, 0.5))}",
                tag("small", "ms"),
            ],
            f"off {count_of(len(off.tpot_ms))}, best {count_of(len(best.tpot_ms))}",
        )
    elif off.tokens_per_s is not None and best.tokens_per_s is not None:
        yield _tile(
            "tokens a second",
            f"{rate(off.tokens_per_s)} → {rate(best.tokens_per_s)}",
            f"off {count_of(off.num_requests)}, best {count_of(best.num_requests)}",
        )


def _effort(results: Results) -> Markup:
    arms = {arm.name for load in results.loads for arm in load.arms if arm.num_requests}
    told = (
        _number(len(arms), "arm"),
        _number(len(results.loads), "load"),
        duration(results.duration_s),
    )
    return _tile("requests measured", f"{results.num_requests:,}", ", ".join(told))


def _number(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _reasons(verdict: Mapping[str, Any] | None) -> Markup:
    found = () if verdict is None else verdict.get("reasons", ())
    reasons = [str(each) for each in found] or ["nothing could be measured against off"]
    parts = [each for each in reasons if each.startswith(("category ", "temperature "))]
    if len(parts) <= 3:
        parts = []
    shown = [each for each in reasons if each not in parts]
    return tag(
        "div",
        tag("h2", "Why"),
        tag("ul", [tag("li", each) for each in shown], class_="reasons"),
        folded(
            f"{len(parts)} parts of the traffic, each by itself",
            tag("ul", [tag("li", each) for each in parts], class_="reasons"),
        )
        if parts
        else None,
    )


def _next(words: str, files: Sequence[str], *, is_on: bool) -> Markup:
    present = [name for name in FILES if name in files]
    listed = tag(
        "ul",
        [tag("li", tag("a", tag("code", name), href=name), f" {FILES[name]}") for name in present],
        class_="files",
    )
    held = any(name in _CONFIGURED for name in present)
    leads = "Beside this page, with speculation left off:" if held and not is_on \
        else "Beside this page:"  # fmt: skip
    return tag(
        "div",
        tag("h2", "What to do next"),
        tag("p", words),
        tag("p", leads) if present else None,
        listed if present else None,
    )
