from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outdraft.tune.belief import believe

PROPOSERS = {"a2": "a", "a4": "a", "a8": "a", "b2": "b", "b4": "b"}
PREDICTED = {"a2": 1.5, "a4": 1.6, "a8": 1.4, "b2": 1.55, "b4": 1.58}


def test_before_a_block_it_is_the_prediction() -> None:
    belief = believe(PREDICTED, PROPOSERS, {})
    assert {name: belief.of(name) for name in PREDICTED} == pytest.approx(
        {name: math.log(each) for name, each in PREDICTED.items()}
    )


def test_many_blocks_outweigh_it() -> None:
    belief = believe(PREDICTED, PROPOSERS, {"a4": [math.log(1.2)] * 200})
    assert math.exp(belief.of("a4")) == pytest.approx(1.2, rel=0.01)


def test_what_one_shows_the_others_of_its_proposer_share() -> None:
    """The prediction was too hopeful for a4: most of that holds for a2 and a8, some for b."""
    belief = believe(PREDICTED, PROPOSERS, {"a4": [math.log(1.6) - 0.3] * 20})
    moved = {name: math.log(PREDICTED[name]) - belief.of(name) for name in PREDICTED}
    assert moved["a4"] > moved["a2"] == pytest.approx(moved["a8"])
    assert moved["a2"] > moved["b2"] == pytest.approx(moved["b4"])
    assert moved["b2"] > 0.03


def test_an_arm_that_ran_often_is_surer_than_one_that_did_not() -> None:
    belief = believe(
        PREDICTED, PROPOSERS, {"a4": [math.log(1.6)] * 30, "b4": [math.log(1.58)] * 30}
    )
    rival = belief.might_lead_by("b4", "a4", 1.5)
    unseen = belief.might_lead_by("b2", "a4", 1.5)
    assert rival < unseen
    assert rival == pytest.approx(math.log(1.58 / 1.6), abs=0.05)


def test_quiet_machines_are_believed_sooner() -> None:
    draw = random.Random(0)
    quiet, loud = ([math.log(1.2) + draw.gauss(0, sd) for _ in range(8)] for sd in (0.005, 0.3))
    moved = [believe(PREDICTED, PROPOSERS, {"a4": each}).of("a4") for each in (quiet, loud)]
    assert abs(moved[0] - math.log(1.2)) < abs(moved[1] - sum(loud) / 8)


@given(
    st.dictionaries(
        st.sampled_from(list(PREDICTED)), st.lists(st.floats(-1, 1), min_size=1, max_size=20)
    )
)
def test_blocks_make_surer_and_pull_towards_themselves(gains: dict[str, list[float]]) -> None:
    before, after = (believe(PREDICTED, PROPOSERS, each) for each in ({}, gains))
    for name, own in gains.items():
        at = after.place[name]
        assert 0 < after.covariance[at, at] < before.covariance[at, at]
        assert after.might_lead_by(name, name, 3) == pytest.approx(0, abs=1e-9)
        if len(gains) == 1:
            mean = sum(own) / len(own)
            low, high = sorted((before.of(name), mean))
            assert low - 1e-9 <= after.of(name) <= high + 1e-9
