"""The run itself: all arms, pruned candidates, environment and settings."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from outdraft.report.layout import folded, lead, nothing, table, two_lines
from outdraft.report.markup import Child, Markup, join, tag
from outdraft.report.numbers import (
    UNKNOWN,
    count_of,
    drafted_text,
    interval,
    percent,
    plain,
    rate,
    share,
    times,
)
from outdraft.tune.answer import LoadAnswer, answer_of
from outdraft.tune.final_prompts import measured_anew
from outdraft.tune.results import PREDICTED, STATES, UNTRIED, ArmResult, Results

_PAIRS = (
    "A pair is one request, sent to the arm and to off. Intervals are computed over blocks; fewer "
    "than five blocks give none. The level of an interval stands beside it."
)
_RACED = (
    "from the race: they share an error of 5 %, and the highest of them is likely to be too high."
)
_FINAL = "Figures of that arm and of off beside it are of the final; all others are"
_MOST_UNMEASURED = 4  # arms in the table of those that were measured; more are folded


def arms_section(results: Results) -> Markup:
    if not results.loads:
        return nothing("No load was measured.")
    answer = answer_of(results)
    anew = measured_anew([each.load for each in answer.loads])
    of_what = f"{anew} {_FINAL}" if anew else "All figures are"
    return join(
        lead(f"{_PAIRS} {of_what} {_RACED}"),
        [_table(each, is_open=each is answer.main) for each in map(answer.at, results.loads)],
    )


def _table(answer: LoadAnswer, *, is_open: bool) -> Markup:
    load = answer.load
    counts = Counter(arm.fate for arm in load.arms)
    states = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    with_goodput = any(arm.goodput_per_s is not None for arm in load.arms)
    goodput = ["goodput/s"] if with_goodput else []
    head = ["arm", "state", "speedup", "pairs", "predicted", "acceptance", "tokens/s", *goodput,
            "requests", "note"]  # fmt: skip
    arms = sorted(load.arms, key=lambda arm: (STATES.index(arm.fate), -(arm.speedup or 0.0)))
    unmeasured = [arm for arm in arms if arm.fate in (PREDICTED, UNTRIED)]

    def shown(members: Sequence[ArmResult], label: str) -> Markup:
        rows = [_row(arm, with_goodput, is_recommended=arm.name == answer.arm) for arm in members]
        return table(head, rows, label, {1: "short", len(head) - 1: "words"})

    if len(unmeasured) <= _MOST_UNMEASURED:
        unmeasured = []
    label = f"arms at {load.name}"
    return folded(
        f"{load.name}: {states}",
        shown([arm for arm in arms if arm not in unmeasured], label),
        folded(
            f"{len(unmeasured)} arms that were not measured",
            shown(unmeasured, f"{label}, not measured"),
        )
        if unmeasured
        else None,
        is_open=is_open,
    )


def _row(arm: ArmResult, with_goodput: bool, *, is_recommended: bool) -> list[Child]:
    ratio = arm.measured
    failed = f"{arm.num_errors:,} failed" if arm.num_errors else ""
    drafted = drafted_text(arm.share_drafted)
    length = "" if arm.acceptance_length is None else f"length {arm.acceptance_length:.2f}"
    measured: list[Child] = [UNKNOWN, UNKNOWN]
    if ratio is not None:
        shows_level = ratio.low is not None and ratio.level != 0.95
        level = f" {percent(ratio.level)}" if shows_level else ""
        measured = [
            two_lines(times(ratio.estimate), f"{interval(ratio)}{level}"),
            two_lines(count_of(ratio.num_pairs), ratio.blocks_text),
        ]
    return [
        arm.name,
        f"★ {arm.fate}" if is_recommended else arm.fate,
        *measured,
        times(arm.predicted),
        [two_lines(share(arm.acceptance_rate), length), *two_lines(None, drafted)],
        rate(arm.tokens_per_s),
        *([rate(arm.goodput_per_s)] if with_goodput else []),
        two_lines(f"{arm.num_requests:,}", failed),
        arm.reason,
    ]


def pruned_section(results: Results) -> Markup:
    rows = [(each.name, each.reason) for each in results.pruned]
    return join(
        lead("Candidates that the plan ruled out, so that no time was spent on them."),
        table(("candidate", "why"), rows, "pruned candidates", {1: "words"})
        if rows
        else nothing("None: the plan ruled out no candidate."),
    )


def run_section(results: Results) -> Markup:
    return join(
        lead("What this was measured on. Elsewhere the numbers may differ."),
        tag("ul", [tag("li", note) for note in results.notes], class_="notes")
        if results.notes
        else None,
        tag(
            "div",
            tag("div", tag("h3", "Environment"), facts(results.environment)),
            tag("div", tag("h3", "Settings"), facts(results.settings)),
            class_="columns",
        ),
    )


def facts(values: Mapping[str, Any]) -> Markup:
    rows = [tag("div", tag("dt", key), tag("dd", value)) for key, value in _flat(values)]
    return tag("dl", rows, class_="facts") if rows else nothing("Not recorded.")


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        name = f"{prefix}{key}".replace("_", " ")
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name} ")
        else:
            yield name, plain(value)
