"""The order of visits, off between two of them, and what visits add to an interval."""

from __future__ import annotations

import math
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from outdraft.decide.evidence import Evidence
from outdraft.records import Record
from outdraft.speculation import OFF, Speculation
from outdraft.stats.ratios import Ratio
from outdraft.tune.arm import Load, name_of
from outdraft.tune.journal import Block
from outdraft.tune.visits import (
    evidence_of_visits,
    mean_block,
    plan_visits,
    visit_variance,
    with_visits,
)

A, B = Speculation("ngram", k=3), Speculation("ngram", k=5)
ONE, FOUR = Load(1), Load(4)


def block(number: int, e2e: list[float], start: int = 0, arm: str = "off") -> Block:
    records = tuple(
        Record(
            prompt_id=f"p{number}-{index}", category="chat", temperature=0.0, arm=arm,
            block=number, index=index, scheduled_ns=start + index * 10**9,
            sent_ns=start + index * 10**9, first_ns=start + index * 10**9 + 10**7,
            last_ns=start + index * 10**9 + round(seconds * 1e9), completion_tokens=9,
        )
        for index, seconds in enumerate(e2e)
    )  # fmt: skip
    return Block("concurrency 1, final of x", arm, number, 1.0, records)


def test_each_engine_is_up_for_all_its_loads() -> None:
    jobs = list(plan_visits({ONE: A, FOUR: B}, 3))
    visits = [name_of(arm) for arm, _ in groupby(jobs, key=lambda each: each.arm)]
    assert visits == ["off", "ngram k=3", "ngram k=5", "off", "ngram k=5", "ngram k=3", "off"]
    keys = [(each.load.name, name_of(each.arm), each.block) for each in jobs]
    assert len(set(keys)) == len(keys)
    for load, arm in ((ONE, A), (FOUR, B)):
        own = [each for each in jobs if each.load.concurrency == load.concurrency]
        numbers = [0, 1, 2, 100, 101, 102]
        assert [each.block for each in own if each.arm == arm] == numbers
        off = [each.block for each in own if each.arm == OFF]
        assert sorted(off) == sorted(numbers * 2), "every block of off twice"


@given(st.lists(st.tuples(st.floats(0.02, 50), st.floats(0.02, 50)), min_size=1, max_size=6))
def test_off_between_two_visits(times: list[tuple[float, float]]) -> None:
    first = block(0, [one for one, _ in times], start=5 * 10**9)
    again = block(0, [other for _, other in times], start=10**15)
    for each, both in zip(mean_block(first, again).records, times, strict=True):
        assert (each.e2e_ns or 0) / 1e9 == pytest.approx(math.sqrt(both[0] * both[1]), abs=1e-6)


def test_visits_that_do_not_differ_add_nothing() -> None:
    numbers = (0, 1, 2, 100, 101, 102)
    first = [block(number, [1.0, 2.0]) for number in numbers]
    again = [block(number, [1.0, 2.0], start=10**15) for number in numbers]
    assert visit_variance(first, again) == pytest.approx(0)
    assert visit_variance(first, again[:3]) == math.inf, "the second half was measured once"
    assert visit_variance(first, ()) == math.inf
    slower = [block(number, [1.1, 2.2]) for number in numbers]
    steps = [0.0, math.log(1.1), 2 * math.log(1.1)]
    assert visit_variance(first, slower) == pytest.approx(np.var(steps, ddof=1))


@given(st.floats(0.2, 5), st.floats(0.001, 0.5), st.floats(0, 0.1))
def test_an_interval_only_gets_wider(estimate: float, reach: float, variance: float) -> None:
    ratio = Ratio(estimate, estimate * math.exp(-reach), estimate * math.exp(reach), 0.95, 20, 10)
    wider = with_visits(ratio, variance)
    assert wider is not None
    assert (wider.low or 0) <= (ratio.low or 0) * (1 + 1e-9)
    assert (wider.high or 0) >= (ratio.high or 0) * (1 - 1e-9)
    assert with_visits(None, variance) is None


@pytest.mark.parametrize("of_requests", [0.001, 0.01, 0.05])
@pytest.mark.parametrize("of_visit", [0.005, 0.03])
def test_it_covers_the_truth_as_often_as_it_says(of_requests: float, of_visit: float) -> None:
    """Off's three visits and an arm's two, each with an error of its own, 4,000 times."""
    rng, num = np.random.default_rng(0), 4000
    off, arm = rng.normal(0, of_visit, (num, 3)), rng.normal(0, of_visit, (num, 2))
    error = rng.normal(0, of_requests, num) + off @ [0.25, 0.5, 0.25] - arm.mean(axis=1)
    reach = of_requests * special.stdtrit(1000, 0.975)
    covered = 0
    for visits, log in zip(off, error, strict=True):
        ratio = Ratio(math.exp(log), math.exp(log - reach), math.exp(log + reach), 0.95, 99, 10)
        wider = with_visits(ratio, float(np.var(visits, ddof=1)))
        assert wider is not None
        covered += (wider.low or 0) <= 1 <= (wider.high or 0)
    assert covered / num > 0.935


def test_what_visits_differ_by_is_in_every_ratio_of_the_evidence() -> None:
    ratio = Ratio(1.2, 1.1, 1.3, 0.95, 100, 10)
    parts = {"tpot_by_part": {"category code": ratio}, "by_category": {"code": ratio}}
    wider = evidence_of_visits(Evidence(e2e=ratio, p99=ratio, **parts), 0.01)
    for each in (wider.e2e, wider.by_category["code"], wider.tpot_by_part["category code"]):
        assert each is not None
        assert each.low is not None
        assert each.low < 1.1
    assert wider.p99 is None
