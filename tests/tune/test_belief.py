from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outdraft.tune.belief import believe, expected_speedups

PROPOSERS = {"a2": "a", "a4": "a", "a8": "a", "b2": "b", "b4": "b"}


def blocks(gain: float, count: int) -> dict[int, float]:
    return dict.fromkeys(range(count), gain)


PREDICTED = {"a2": 1.5, "a4": 1.6, "a8": 1.4, "b2": 1.55, "b4": 1.58}


def test_before_a_block_it_is_the_prediction() -> None:
    belief = believe(PREDICTED, PROPOSERS, {})
    assert {name: belief.of(name) for name in PREDICTED} == pytest.approx(
        {name: math.log(each) for name, each in PREDICTED.items()}
    )


def test_many_blocks_outweigh_it() -> None:
    belief = believe(PREDICTED, PROPOSERS, {"a4": blocks(math.log(1.2), 400)})
    assert math.exp(belief.of("a4")) == pytest.approx(1.2, rel=0.01)


def test_what_one_shows_the_others_of_its_proposer_share() -> None:
    """The prediction was too hopeful for a4: most of that holds for a2 and a8, some for b."""
    belief = believe(PREDICTED, PROPOSERS, {"a4": blocks(math.log(1.6) - 0.3, 20)})
    moved = {name: math.log(PREDICTED[name]) - belief.of(name) for name in PREDICTED}
    assert moved["a4"] > moved["a2"] == pytest.approx(moved["a8"])
    assert moved["a2"] > moved["b2"] == pytest.approx(moved["b4"])
    assert moved["b2"] > 0.03


def test_an_arm_that_ran_often_is_surer_than_one_that_did_not() -> None:
    belief = believe(
        PREDICTED, PROPOSERS, {"a4": blocks(math.log(1.6), 30), "b4": blocks(math.log(1.58), 30)}
    )
    rival = belief.might_lead_by("b4", "a4", 1.5)
    unseen = belief.might_lead_by("b2", "a4", 1.5)
    assert rival < unseen
    assert rival == pytest.approx(math.log(1.58 / 1.6), abs=0.05)


def test_quiet_machines_are_believed_sooner() -> None:
    draw = random.Random(0)
    moved = []
    for deviation in (0.005, 0.3):
        gains = {
            name: {at: truth + draw.gauss(0, deviation) for at in range(8)}
            for name, truth in (("a4", 0.1), ("b4", 0.5))
        }
        belief = believe(PREDICTED, PROPOSERS, gains)
        said = sum(gains["b4"].values()) / 8 - sum(gains["a4"].values()) / 8
        before = math.log(PREDICTED["b4"] / PREDICTED["a4"])
        moved.append((belief.of("b4") - belief.of("a4") - before) / (said - before))
    assert moved[0] > 0.75 > 0.5 > moved[1]


def test_a_block_that_was_fast_for_all_says_nothing_for_who_was_in_it() -> None:
    """a4 ran in all blocks, b4 only in the last four, when off was slow for a while."""
    lucky = dict.fromkeys(range(4, 8), 0.1)
    gains = {"a4": {at: math.log(1.6) + lucky.get(at, 0.0) for at in range(8)},
             "b4": {at: math.log(1.58) + each for at, each in lucky.items()}}  # fmt: skip
    belief = believe(PREDICTED, PROPOSERS, gains)
    assert belief.of("a4") > belief.of("b4")


@given(
    st.dictionaries(
        st.sampled_from(list(PREDICTED)),
        st.dictionaries(st.integers(2, 20), st.floats(-1, 1), min_size=1),
    )
)
def test_blocks_make_surer_and_pull_towards_themselves(gains: dict[str, dict[int, float]]) -> None:
    before, after = (believe(PREDICTED, PROPOSERS, each) for each in ({}, gains))
    for name, own in gains.items():
        at = after.place[name]
        assert 0 < after.covariance[at, at] < before.covariance[at, at]
        assert after.might_lead_by(name, name, 3) == pytest.approx(0, abs=1e-9)
        if len(gains) == 1:
            mean = sum(own.values()) / len(own)
            low, high = sorted((before.of(name), mean))
            assert low - 1e-9 <= after.of(name) <= high + 1e-9


def expected_of(gains: dict[str, dict[int, float]]) -> dict[str, float]:
    return expected_speedups(believe(PREDICTED, PROPOSERS, gains), PREDICTED, PROPOSERS, gains)


def test_what_is_expected_of_an_arm_comes_from_the_others() -> None:
    """All were predicted by a third too high, because off was slow in the first blocks."""
    gains = {name: blocks(math.log(PREDICTED[name] / 1.33), 8) for name in ("a4", "b2")}
    found = expected_of(gains)
    for name, each in PREDICTED.items():
        moved = math.log(each / found[name]) / math.log(1.33)
        assert 0.4 < moved < 1, f"{name}: a good part of the way, and not beyond"
    alone = expected_of({"a4": gains["a4"]})
    assert alone["a4"] == pytest.approx(PREDICTED["a4"]), "its own blocks do not count"
    assert alone["a2"] < 0.85 * PREDICTED["a2"]


@settings(deadline=None)  # a busy machine is slow
@given(st.dictionaries(st.sampled_from(sorted(PREDICTED)), st.floats(-1, 1), max_size=5))
def test_an_arms_own_blocks_never_change_what_is_expected_of_it(gains: dict[str, float]) -> None:
    told = {name: blocks(gain, 3) for name, gain in gains.items()}
    for name in gains:
        without = {other: each for other, each in told.items() if other != name}
        mine = expected_of(told)[name]
        assert mine == pytest.approx(expected_of(without)[name])
