"""The decision. Measured evidence decides; checks only explain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from outdraft.decide.checks import Check, Thresholds, run_checks
from outdraft.decide.evidence import Evidence
from outdraft.stats import Ratio, Zone, zone

SHIP, DONT_SHIP, SHIP_FOR, INCONCLUSIVE = "SHIP", "DON'T SHIP", "SHIP FOR", "INCONCLUSIVE"
DEFAULT_MARGIN = 0.01  # a difference this small is none


@dataclass(frozen=True, slots=True)
class Verdict:
    decision: str
    ship_for: tuple[str, ...]  # the parts of the traffic it wins on, if not on all
    reasons: tuple[str, ...]
    checks: tuple[Check, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def decide(
    evidence: Evidence,
    *,
    thresholds: Thresholds | None = None,
    margin: float = DEFAULT_MARGIN,
) -> Verdict:
    """`margin`: how far from 1 an interval must lie to count; the noise floor widens it."""
    margin = max(margin, evidence.noise_floor)
    checks = tuple(run_checks(evidence, thresholds or Thresholds()))
    decision, ship_for, reasons = _decide(evidence, margin)
    return Verdict(decision, ship_for, (*reasons, *_remarks(evidence)), checks)


def _decide(evidence: Evidence, margin: float) -> tuple[str, tuple[str, ...], list[str]]:
    main = evidence.e2e
    if not evidence.is_valid:
        # Not every problem is the reason: some are only good to know.
        return INCONCLUSIVE, (), ["the run is invalid and proves nothing", *evidence.problems]
    if main is None or main.low is None:
        count = 0 if main is None else main.num_blocks
        words = f"too little was measured for an interval ({count} blocks)"
        return INCONCLUSIVE, (), [words + _more(evidence)]
    whole = zone(main, margin)
    parts = {
        **{f"category {name}": zone(each, margin) for name, each in evidence.by_category.items()},
        **{
            f"temperature {name}": zone(each, margin)
            for name, each in evidence.by_temperature.items()
        },
    }
    winners = tuple(name for name, where in parts.items() if where is Zone.WIN)
    losers = tuple(name for name, where in parts.items() if where is Zone.LOSE)
    told = [_told("requests end to end", main)]
    told += [_told(name, _part(evidence, name)) for name in (*winners, *losers)]
    tail = evidence.p99
    tail_loses = tail is not None and zone(tail, margin) is Zone.LOSE
    if tail is not None and tail_loses:
        told.insert(1, _told("P99 end to end", tail))
    if winners and losers:
        return SHIP_FOR, _without_overlap(winners, losers), told
    if whole is Zone.WIN and (tail_loses or losers):
        who = "the tail" if tail_loses else "a part of the traffic"
        told.append(f"the median gains and {who} loses: measure the parts of this traffic apart")
        return INCONCLUSIVE, (), told
    if whole is Zone.WIN:
        return SHIP, (), told
    if winners:
        return SHIP_FOR, winners, told
    if whole is Zone.LOSE:
        return DONT_SHIP, (), told
    if whole is Zone.TIE:
        told.append(f"no difference of more than {100 * margin:.3g} % either way")
        return INCONCLUSIVE, (), told
    told.append(f"not clear: the interval is neither beyond nor within {100 * margin:.3g} % of 1")
    told[-1] += _more(evidence)
    return INCONCLUSIVE, (), told


def _without_overlap(winners: tuple[str, ...], losers: tuple[str, ...]) -> tuple[str, ...]:
    """If whole temperatures lose, say which to ship for; categories then are mixed ones."""
    for kind in ("temperature", "category"):
        if any(name.startswith(kind) for name in losers):
            chosen = tuple(name for name in winners if name.startswith(kind))
            if chosen:
                return chosen
    return winners


def _part(evidence: Evidence, name: str) -> Ratio:
    kind, _, which = name.partition(" ")
    table: Mapping[str, Ratio] = (
        evidence.by_category if kind == "category" else evidence.by_temperature
    )
    return table[which]


def _told(what: str, ratio: Ratio) -> str:
    word = "faster" if ratio.estimate >= 1 else "slower"
    times = ratio.estimate if ratio.estimate >= 1 else 1 / ratio.estimate
    interval = "" if ratio.low is None else f" [{ratio.low:.2f}, {ratio.high:.2f}]"
    return (
        f"{what}: {times:.2f} times {word}, speedup {ratio.estimate:.2f}{interval}, "
        f"n={ratio.num_pairs}"
    )


def _more(evidence: Evidence) -> str:
    if evidence.more_requests is None:
        return ""
    return f"; about {evidence.more_requests} more requests would make it clear"


def _remarks(evidence: Evidence) -> list[str]:
    remarks = []
    if evidence.error_rate:
        remarks.append(f"{100 * evidence.error_rate:.2g} % of the requests failed and are left out")
    if evidence.is_valid:
        remarks += evidence.problems
        if evidence.e2e is not None and evidence.p99 is None:
            remarks.append(
                f"the tail is not known: {evidence.e2e.num_pairs} pairs are too few for a P99"
            )
    return remarks
