"""The rules with their numbers, which are the verdict's too."""

from __future__ import annotations

import pytest

from outdraft.decide.checks import Thresholds, run_checks
from outdraft.decide.evidence import Evidence
from outdraft.plan.findings import Pairing, Shares, rules, size_ratio_check


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
    assert size_ratio_check(ratio).state == state


@pytest.mark.parametrize("ratio", [7.9, 10.0, 12.1])
def test_the_verdict_has_the_same_checks(ratio: float) -> None:
    shares, pairing = Shares(0.71, 0.1, 0.19), Pairing(ratio, True, True)
    evidence = Evidence(e2e=None, memory=shares, pairing=pairing)
    checks = {check.name: check for check in run_checks(evidence, Thresholds())}
    for finding in (*rules(shares, has_draft=True), size_ratio_check(ratio)):
        check = checks[finding.name]
        assert (check.value, check.threshold) == (finding.value, finding.threshold)
        assert (check.state, check.advice) == (finding.state, finding.advice)
