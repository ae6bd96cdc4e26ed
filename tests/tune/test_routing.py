from __future__ import annotations

from dataclasses import replace

import pytest

from outdraft.report.tune_table import best_line
from outdraft.testing.sample_results import ratio_about, sample_results
from outdraft.tune.results import LoadResult, Results
from outdraft.tune.routing import pays_for_all, routing_of


def decided(decision: str | None, whole: float = 1.5) -> Results:
    """Of the main load, with so much for all of it together."""
    results = sample_results()
    ship_for = ["category code", "category qa"] if decision == "SHIP FOR" else []
    verdict = {"decision": decision, "ship_for": ship_for, "reasons": [], "checks": []}
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
    assert pays_for_all(main_of(decided(decision, whole))) == pays


def test_the_line_says_where_to_route() -> None:
    results = decided("SHIP FOR", 0.9)
    told = "route category code, category qa to a server with it; for mixed traffic it stays off"
    assert routing_of(main_of(results)) == told
    assert best_line(results).endswith(f"SHIP FOR category code, category qa · {told}")
    assert "wins as a whole" in routing_of(main_of(decided("SHIP FOR", 1.5)))
    assert routing_of(main_of(decided("SHIP"))) == ""
    assert best_line(decided("SHIP")).endswith("· SHIP")
