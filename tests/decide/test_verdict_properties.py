"""What holds for any evidence at all."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from outdraft.decide.checks import Thresholds
from outdraft.decide.evidence import Evidence
from outdraft.decide.texts import judge_texts
from outdraft.decide.verdict import DONT_SHIP, INCONCLUSIVE, SHIP, SHIP_FOR, decide
from outdraft.stats.ratios import Ratio

from .evidences import circumstances, evidences, intervals, margins, shares

_thresholds = st.builds(
    Thresholds, st.floats(0, 5), shares, shares, st.floats(0, 999), shares, shares, shares
)


@given(evidence=evidences, around=circumstances, limits=_thresholds, margin=margins)
def test_checks_and_what_they_look_at_never_decide(
    evidence: Evidence, around: dict[str, Any], limits: Thresholds, margin: float
) -> None:
    plain = decide(evidence, margin=margin)
    other = decide(replace(evidence, **around), thresholds=limits, margin=margin)
    assert (other.decision, other.ship_for) == (plain.decision, plain.ship_for)
    assert other.reasons == plain.reasons


@given(evidence=evidences, margin=margins)
def test_ship_only_above_and_dont_ship_only_below_the_margin(
    evidence: Evidence, margin: float
) -> None:
    decision = decide(evidence, margin=margin).decision
    least = max(margin, evidence.noise_floor)
    if decision in (SHIP, DONT_SHIP) and not (decision == DONT_SHIP and writes_other(evidence)):
        assert evidence.is_valid
        assert evidence.e2e is not None
        assert evidence.e2e.low is not None
        assert evidence.e2e.high is not None
        if decision == SHIP:
            assert evidence.e2e.low > 1 + least
        else:
            assert evidence.e2e.high < 1 - least or server_loses(evidence, least)


def server_loses(evidence: Evidence, margin: float) -> bool:
    """Clearly, under a load that fills it."""
    is_full = (evidence.concurrency or 1) > 1 and not evidence.has_idle_slots
    return is_full and loses(evidence.throughput, margin)


def loses(ratio: Ratio | None, margin: float) -> bool:
    return ratio is not None and ratio.high is not None and ratio.high < 1 - margin


@given(evidence=evidences, margin=margins)
def test_the_whole_wins_only_if_nothing_of_it_loses(evidence: Evidence, margin: float) -> None:
    verdict, least = decide(evidence, margin=margin), max(margin, evidence.noise_floor)
    assert verdict.whole_wins is not None
    assert verdict.whole_wins or verdict.decision != SHIP
    if verdict.whole_wins:
        assert verdict.decision in (SHIP, SHIP_FOR)
        assert evidence.e2e is not None
        assert (evidence.e2e.low or 0) > 1 + least
        assert not server_loses(evidence, least)
        assert not any(loses(each, least) for each in (evidence.p99, evidence.total))
        assert bool(verdict.losers) == (verdict.decision == SHIP_FOR)
    assert all(loses(evidence.parts[name], least) for name in verdict.losers)


@given(evidence=evidences, margin=margins)
def test_a_clear_loss_of_a_full_server_is_a_loss(evidence: Evidence, margin: float) -> None:
    """Parts may still gain, each by its own tokens."""
    verdict, least = decide(evidence, margin=margin), max(margin, evidence.noise_floor)
    if evidence.e2e is None or not server_loses(evidence, least):
        return
    assert verdict.decision != SHIP
    assert not verdict.whole_wins
    for name in verdict.ship_for:
        assert (evidence.tpot_by_part[name].low or 0) > 1 + least


def writes_other(evidence: Evidence) -> bool:
    """Clearly not the baseline's texts, in a run that proves something and should keep them."""
    is_judged = evidence.is_valid and not evidence.is_lossy
    return is_judged and judge_texts(evidence.texts, evidence.text_floor) == "other"


@given(evidence=evidences, margin=margins)
def test_texts_only_make_a_decision_worse(evidence: Evidence, margin: float) -> None:
    plain = decide(replace(evidence, texts=None), margin=margin)
    judged = decide(evidence, margin=margin)
    assert _RANK[judged.decision] <= _RANK[plain.decision]
    if writes_other(evidence):
        assert judged.decision == DONT_SHIP
        assert "writes other texts" in judged.reasons[0]
    elif judged.decision != plain.decision:
        assert (judged.decision, plain.decision in (SHIP, SHIP_FOR)) == (INCONCLUSIVE, True)
        assert "may write other texts" in judged.reasons[0]
    lossy = decide(replace(evidence, is_lossy=True), margin=margin)
    assert (lossy.decision, lossy.ship_for) == (plain.decision, plain.ship_for)


@given(evidence=evidences, margin=margins)
def test_ship_for_names_what_wins_and_nothing_else(evidence: Evidence, margin: float) -> None:
    verdict = decide(evidence, margin=margin)
    assert bool(verdict.ship_for) == (verdict.decision == SHIP_FOR)
    for name in verdict.ship_for:
        kind, _, which = name.partition(" ")
        table = evidence.by_category if kind == "category" else evidence.by_temperature
        low = table[which].low
        assert low is not None
        assert low > 1 + max(margin, evidence.noise_floor)


@given(evidence=evidences, margin=margins)
def test_invalid_is_inconclusive_and_there_is_always_a_reason(
    evidence: Evidence, margin: float
) -> None:
    verdict = decide(evidence, margin=margin)
    assert verdict.reasons
    if not evidence.is_valid:
        assert verdict.decision == INCONCLUSIVE
    elif evidence.e2e is None or evidence.e2e.low is None:
        expected = DONT_SHIP if writes_other(evidence) else INCONCLUSIVE
        assert verdict.decision == expected


@given(evidence=evidences, margin=margins, floor=margins)
def test_a_noise_floor_is_a_margin(evidence: Evidence, margin: float, floor: float) -> None:
    quiet = replace(evidence, noise_floor=0.0)
    assert decide(replace(evidence, noise_floor=floor), margin=margin) == decide(
        quiet, margin=max(margin, floor)
    )


@given(interval=intervals, margin=margins, wider=margins)
def test_a_wider_margin_never_makes_a_decision(
    interval: Ratio, margin: float, wider: float
) -> None:
    evidence = Evidence(e2e=interval)
    sure = decide(evidence, margin=max(margin, wider)).decision
    if sure != INCONCLUSIVE:
        assert decide(evidence, margin=min(margin, wider)).decision == sure


_RANK = {DONT_SHIP: 0, INCONCLUSIVE: 1, SHIP_FOR: 2, SHIP: 3}


@given(evidence=evidences, by=st.floats(1.0, 3.0), margin=margins)
def test_a_better_whole_never_makes_the_decision_worse(
    evidence: Evidence, by: float, margin: float
) -> None:
    """The parts as they are, the interval of the whole moved up."""
    main = evidence.e2e
    if main is None or main.low is None or main.high is None:
        return
    # A tail or a sum that loses speaks against a gain alone.
    evidence = replace(evidence, p99=None, total=None)
    better = replace(main, estimate=main.estimate * by, low=main.low * by, high=main.high * by)
    before = decide(evidence, margin=margin).decision
    after = decide(replace(evidence, e2e=better), margin=margin).decision
    assert _RANK[after] >= _RANK[before]


@given(evidence=evidences, around=circumstances)
def test_every_verdict_is_json(evidence: Evidence, around: dict[str, Any]) -> None:
    verdict = decide(replace(evidence, **around))
    told = json.loads(json.dumps(asdict(verdict), allow_nan=False))
    assert told["decision"] == verdict.decision
    assert len(told["checks"]) == len(verdict.checks)
