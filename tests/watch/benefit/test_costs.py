"""Costs follow from what `tune` measured."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from outdraft.acceptance import Acceptance
from outdraft.speculation import OFF, Speculation
from outdraft.stats.ratios import Ratio
from outdraft.step_costs import StepCosts
from outdraft.tune.results import (
    BASELINE,
    BEST,
    ArmResult,
    LoadResult,
    PredictionResult,
    Results,
    results_from_json,
)
from outdraft.watch.benefit.costs import Costs, LoadCosts
from outdraft.watch.benefit.predicted import costs_benefit
from tests.watch.benefit.planted import growth

EAGLE = Speculation("eagle", k=3, draft="head")


def results() -> Results:
    def load(running: int, speedup: float) -> LoadResult:
        """100 rounds gave 253 tokens."""
        counts = Acceptance(100, 300, 153, 0, [70, 49, 34], [100] * 3)
        ratio = Ratio(speedup, speedup / 1.1, speedup * 1.1, 0.95, 50, 10)
        arms = (
            ArmResult("off", OFF, BASELINE, tpot_ms=(40.0, 41.0)),
            ArmResult(
                "eagle head k=3", EAGLE, BEST, ratios={"tpot": ratio}, counts=counts,
                num_tokens=254, num_texts=1, pace_ratio=speedup,
            ),
        )  # fmt: skip
        return LoadResult(f"concurrency {running}", running, None, arms, arms[1].name, None)

    loads = (load(1, 2.3), load(8, 1.1))
    return Results({}, {}, "outdraft", "t", "e2e", loads, (), (), PredictionResult(0, None, None),
                   main_load="concurrency 1")  # fmt: skip


def test_costs_follow_from_speedups() -> None:
    read = results_from_json(json.loads(json.dumps(results().to_json())))
    assert read == results()
    made = Costs.from_results(read)
    assert made is not None
    assert [each.running for each in made.loads] == [1, 8]
    assert made.loads[0].rounds == pytest.approx({3.0: 2.53 / 2.3})
    assert made.loads[0].error == pytest.approx(0.0486, abs=0.001)
    assert made.round_at(8, 3)[0] == pytest.approx(2.53 / 1.1)  # type: ignore[index]
    assert Costs.from_results(read, "ngram") is None


def test_between_two_loads_verifying_costs_what_its_tokens_do() -> None:
    """Steps are flat up to 8 tokens and steep beyond: a line between two loads does not show
    that."""
    table = StepCosts({1: 0.010, 8: 0.010, 16: 0.030, 32: 0.070})

    def cost(running: int) -> float:
        plain = table.seconds(running)
        return (table.seconds(4 * running) + 0.002 * running) / plain

    loads = tuple(LoadCosts(n, {3.0: cost(n)}, 0.05, plain_s=table.seconds(n)) for n in (1, 8))
    made = Costs(loads, table=table)
    for running in (1, 2, 8):
        found = made.round_at(running, 3)
        assert found is not None
        assert found[0] == pytest.approx(cost(running), rel=0.02)
    alone = Costs(loads).round_at(2, 3)
    assert alone is not None
    assert alone[0] > cost(2) * 1.5


def test_the_same_traffic_gives_the_same_speedup() -> None:
    made = Costs.from_results(results())
    counts = Acceptance(100, 300, 153, 0, [70, 49, 34], [100] * 3)
    rows = [growth(at, 8.0, {"num_tokens": 253.0}, acceptance=counts) for at in range(20)]
    assert made is not None
    found = costs_benefit(made, {"a": rows})
    assert found is not None
    assert found.estimate == pytest.approx(1.1)
    assert (found.low, found.high) == (pytest.approx(1.0, abs=0.01), pytest.approx(1.21, abs=0.01))


def test_results_of_before_will_do() -> None:
    """They have rates and lengths, not counts."""
    old = results()
    arms = tuple(
        tuple(
            replace(arm, counts=None, num_tokens=0, num_texts=0, pace_ratio=None,
                    acceptance_rate=0.51, acceptance_length=2.53)
            for arm in load.arms
        )
        for load in old.loads
    )  # fmt: skip
    loads = tuple(replace(load, arms=own) for load, own in zip(old.loads, arms, strict=True))
    made = Costs.from_results(replace(old, loads=loads))
    assert made is not None
    assert list(made.loads[0].rounds.items()) == [(pytest.approx(3.0), pytest.approx(1.1))]
