"""What the run was: every arm, what was pruned, on what it was measured, with which settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from outdraft.report.html.parts import folded, nothing, section, table
from outdraft.report.markup import Child, Markup, tag
from outdraft.report.numbers import count_of, interval, percent, plain, rate, share, times
from outdraft.stats import Ratio
from outdraft.tune.results import BEST, STATES, ArmResult, LoadResult, Results


def arms_section(results: Results) -> Markup:
    main = results.main
    return section(
        "arms",
        "Every arm",
        "Pairs are requests sent to the arm and to off alike; blocks carry the evidence, and "
        "fewer than five give no interval. All looks and the arms that raced share an error of "
        "5 %, so the level of an interval, beside it, is above 95 %.",
        [
            folded(
                f"{load.name}: {_tried(load)}",
                _arms_table(load),
                opened=load is main,
            )
            for load in results.loads
        ]
        or nothing("No load was measured."),
    )


def _tried(load: LoadResult) -> str:
    counts = [(state, sum(arm.state == state for arm in load.arms)) for state in STATES]
    return ", ".join(f"{count} {state}" for state, count in counts if count)


def _arms_table(load: LoadResult) -> Markup:
    goodput = any(arm.goodput_per_s is not None for arm in load.arms)
    head = ["arm", "state", "speedup", "pairs", "predicted", "acceptance", "tokens/s",
            *(["goodput/s"] if goodput else []), "requests", "note"]  # fmt: skip
    rank = {state: at for at, state in enumerate(STATES)}
    arms = sorted(load.arms, key=lambda arm: (rank.get(arm.state, 9), -_speed(arm)))
    return table(
        head,
        [_arm_row(arm, goodput) for arm in arms],
        f"arms at {load.name}",
        {1: "short", len(head) - 1: "words"},
    )


def _speed(arm: ArmResult) -> float:
    return (arm.measured.estimate if arm.measured is not None else arm.predicted) or 0.0


def _arm_row(arm: ArmResult, goodput: bool) -> list[Child]:
    found = arm.measured
    failed = f"{arm.num_errors:,} failed" if arm.num_errors else ""
    length = "" if arm.acceptance_length is None else f"{arm.acceptance_length:.2f} a round"
    return [
        arm.name,
        f"★ {arm.state}" if arm.state == BEST else arm.state,
        "–" if found is None else _two(times(found.estimate), _interval(found)),
        "–" if found is None else _two(count_of(found.num_pairs), f"{found.num_blocks} blocks"),
        "–" if arm.predicted is None else times(arm.predicted),
        "–" if arm.acceptance_rate is None else _two(share(arm.acceptance_rate), length),
        "–" if arm.tokens_per_s is None else rate(arm.tokens_per_s),
        *(["–" if arm.goodput_per_s is None else rate(arm.goodput_per_s)] if goodput else []),
        _two(f"{arm.num_requests:,}", failed),
        arm.reason,
    ]


def _two(value: str, below: str) -> list[Child]:
    return [value, tag("span", below, class_="ci") if below else None]


def _interval(found: Ratio) -> str:
    """With its level where that is not the usual one."""
    level = "" if found.low is None or found.level == 0.95 else f" {percent(found.level)}"
    return interval(found) + level


def pruned_section(results: Results) -> Markup:
    return section(
        "pruned",
        "Pruned before measuring",
        "Candidates that the plan ruled out, so that no time was spent on them.",
        table(("candidate", "why"), [(each.name, each.reason) for each in results.pruned],
              "pruned candidates", {1: "words"})
        if results.pruned
        else nothing("None: everything asked for was tried or predicted."),
    )  # fmt: skip


def run_section(results: Results) -> Markup:
    return section(
        "run",
        "Environment and settings",
        "What this was measured on. Elsewhere the numbers may differ.",
        tag("ul", [tag("li", note) for note in results.notes], class_="notes")
        if results.notes
        else None,
        tag(
            "div",
            tag("div", tag("h3", "Environment"), _pairs(results.environment)),
            tag("div", tag("h3", "Settings"), _pairs(results.settings)),
            class_="columns",
        ),
    )


def _pairs(values: Mapping[str, Any]) -> Markup:
    rows = list(_flat(values))
    if not rows:
        return nothing("Not recorded.")
    return tag("dl", [tag("div", tag("dt", key), tag("dd", value)) for key, value in rows],
               class_="facts")  # fmt: skip


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for key, value in values.items():
        name = f"{before}{key}".replace("_", " ")
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name} ")
        else:
            yield name, plain(value)
