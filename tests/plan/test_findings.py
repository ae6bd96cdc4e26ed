"""The rules with their numbers, which are the verdict's too."""

from __future__ import annotations

import pytest

from outdraft.decide.checks import Thresholds
from outdraft.decide.evidence import Memory
from outdraft.decide.evidence import Pairing as PairingEvidence
from outdraft.plan import findings
from outdraft.plan.findings import Shares, rules, size_ratio_finding
from outdraft.plan.pairing import Pairing


@pytest.mark.parametrize(
    ("shares", "warned"),
    [
        (Shares(0.70, 0.15, 0.20), []),
        (Shares(0.71, 0.10, 0.25), ["target_memory"]),
        (Shares(0.60, 0.16, 0.25), ["draft_memory"]),
        (Shares(0.60, 0.10, 0.19), ["headroom"]),
        (Shares(0.90, 0.20, -0.10), ["target_memory", "draft_memory", "headroom"]),
    ],
)
def test_rules(shares: Shares, warned: list[str]) -> None:
    found = rules(shares, has_draft=True)
    assert [each.name for each in found if each.state == "warn"] == warned
    assert all(bool(each.advice) == (each.state == "warn") for each in found)


def test_without_a_draft_its_rule_is_silent() -> None:
    assert [each.name for each in rules(Shares(0.5, 0, 0.4), has_draft=False)] == [
        "target_memory",
        "headroom",
    ]


@pytest.mark.parametrize(("ratio", "state"), [(7.9, "warn"), (8, "ok"), (12, "ok"), (13, "warn")])
def test_size_ratio(ratio: float, state: str) -> None:
    assert size_ratio_finding(ratio).state == state


def test_the_verdict_has_the_same_limits() -> None:
    limits = Thresholds()
    assert limits.draft_memory == findings.MAX_DRAFT_SHARE
    assert limits.headroom == findings.MIN_HEADROOM
    assert limits.target_memory == findings.MAX_TARGET_SHARE
    assert limits.smallest_ratio == findings.SMALLEST_RATIO
    assert limits.largest_ratio == findings.LARGEST_RATIO


def test_the_verdicts_evidence_can_be_filled_from_a_plan() -> None:
    shares, pairing = Shares(0.5, 0.1, 0.3), Pairing(9.0, True, True, ())
    memory = Memory(shares.target, shares.draft, shares.headroom)
    assert memory == Memory(0.5, 0.1, 0.3)
    evidence = PairingEvidence(pairing.size_ratio, pairing.same_family, pairing.same_tokenizer)
    assert evidence == PairingEvidence(9.0, True, True)
