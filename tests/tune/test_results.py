from __future__ import annotations

from dataclasses import replace

import pytest

from outdraft.decide.verdict import Verdict
from outdraft.report.tables import best_line
from outdraft.stats.ratios import Ratio
from outdraft.tune.answer import answer_of
from outdraft.tune.results import LoadResult, Results
from outdraft.tune.wording import details
from tests.report.sample_results import ratio_about, sample_results


def decided(decision: str | None, whole: float = 1.5) -> Results:
    """Of the main load, with so much for all of it together."""
    results = sample_results()
    ship_for = ["category code", "category qa"] if decision == "SHIP FOR" else []
    verdict = Verdict(decision, tuple(ship_for), (), ())
    loads = []
    for load in results.loads:
        arms = tuple(
            replace(arm, ratios={"e2e": ratio_about(whole, 0.05, 20)}) for arm in load.arms
        )
        loads.append(replace(load, arms=arms, verdict=verdict if decision else None))
    return replace(results, loads=tuple(loads))


def main_of(results: Results) -> LoadResult:
    assert results.main is not None
    return results.main


@pytest.mark.parametrize(
    ("decision", "whole", "pays"),
    [
        ("SHIP", 1.5, True),
        ("SHIP FOR", 1.5, True),
        ("SHIP FOR", 1.02, False),
        ("SHIP FOR", 0.8, False),
        ("DON'T SHIP", 0.8, False),
        ("INCONCLUSIVE", 1.5, False),
        (None, 1.5, False),
    ],
)
def test_for_mixed_traffic(decision: str | None, whole: float, pays: bool) -> None:
    assert main_of(decided(decision, whole)).pays_for_all == pays


@pytest.mark.parametrize(
    ("changed", "pays"),
    [
        ({}, True),
        ({"e2e": ratio_about(1.05, 0.045, 20)}, False),  # it may be no more than the margin
        ({"throughput": ratio_about(0.93, 0.02, 20)}, False),
        ({"p99": ratio_about(0.6, 0.05, 20)}, False),
        ({"throughput": ratio_about(1.02, 0.04, 20)}, True),  # slots were kept full: times decide
    ],
)
def test_a_verdict_of_before_pays_for_all_if_nothing_that_is_known_loses(
    changed: dict[str, Ratio], pays: bool
) -> None:
    """It did not say whether the whole wins."""
    load = main_of(decided("SHIP FOR"))
    wins = dict.fromkeys(("e2e", "throughput", "p99"), ratio_about(1.5, 0.05, 20))
    arms = tuple(replace(arm, ratios={**wins, **changed}) for arm in load.arms)
    assert replace(load, arms=arms).pays_for_all == pays
    verdict = load.verdict
    assert verdict is not None
    for told in (True, False):
        assert replace(load, verdict=replace(verdict, whole_wins=told)).pays_for_all == told


def test_the_line_says_where_to_route() -> None:
    results = decided("SHIP FOR", 0.9)
    advice = "route category code, category qa to a server with it; for mixed traffic it stays off"
    assert main_of(results).routing_advice == advice
    assert best_line(results).endswith(
        "SHIP FOR category code, category qa · turn it on for category code and category qa only, "
        "at 4 requests at a time; off for the mix"
    )
    assert f"{advice[0].upper()}{advice[1:]}." in details(answer_of(results))
    assert "wins as a whole" in main_of(decided("SHIP FOR", 1.5)).routing_advice
    assert main_of(decided("SHIP")).routing_advice == ""
    line = best_line(decided("SHIP"))
    assert line.endswith("· SHIP · turn it on up to 8 requests at a time; off above")
    whole = details(answer_of(decided("SHIP FOR", 1.5)))
    assert any(each.startswith("This mix wins as a whole, the most with") for each in whole)
