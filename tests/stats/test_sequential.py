"""Looks, zones, what is still needed: definitions and properties. Errors: test_coverage."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outdraft.stats.ratios import MIN_BLOCKS, Ratio
from outdraft.stats.sequential import (
    Look,
    Zone,
    noise_floor,
    pairs_needed,
    plan_looks,
    possible_zones,
    zone,
)

DELTAS = st.floats(0.001, 0.3)


def ratio(estimate: float, reach: float, *, num_blocks: int = 10, num_pairs: int = 200) -> Ratio:
    """With an interval `reach` to either side, in logarithms."""
    low, high = estimate * math.exp(-reach), estimate * math.exp(reach)
    return Ratio(estimate, low, high, 0.95, num_pairs, num_blocks)


some_ratio = st.builds(
    ratio,
    st.floats(0.3, 3.0),
    st.floats(0.0, 1.0),
    num_blocks=st.integers(MIN_BLOCKS, 30),
    num_pairs=st.integers(30, 900),
)
INSUFFICIENT = Ratio(2.0, None, None, 0.95, num_pairs=60, num_blocks=3)


class TestLooks:
    def test_four_looks_at_twenty_blocks(self) -> None:
        looks = plan_looks(20)
        assert [look.num_blocks for look in looks] == [5, 10, 15, 20]
        assert [look.level for look in looks] == pytest.approx(
            [0.996875, 0.990625, 0.984375, 0.978125]
        )

    def test_one_look_has_the_whole_level(self) -> None:
        assert plan_looks(9, 1) == (Look(9, 0.95),)
        assert plan_looks(MIN_BLOCKS) == (Look(MIN_BLOCKS, 0.95),)

    @given(st.integers(MIN_BLOCKS, 60), st.integers(1, 8), st.floats(0.5, 0.99))
    def test_errors_add_up_to_what_was_asked(self, most: int, count: int, level: float) -> None:
        looks = plan_looks(most, count, level=level)
        assert math.fsum(1 - look.level for look in looks) == pytest.approx(1 - level)
        places = [look.num_blocks for look in looks]
        assert places == sorted(set(places))
        assert places[-1] == most
        assert places[0] >= MIN_BLOCKS
        assert len(places) == min(count, most - MIN_BLOCKS + 1)

    @pytest.mark.parametrize(("most", "count"), [(4, 2), (20, 0)])
    def test_too_few(self, most: int, count: int) -> None:
        with pytest.raises(ValueError, match="looks at"):
            plan_looks(most, count)


class TestZones:
    @pytest.mark.parametrize(
        ("low", "high", "expected"),
        [
            (1.04, 1.20, Zone.WIN),
            (0.70, 0.96, Zone.LOSE),
            (0.98, 1.02, Zone.TIE),
            (0.97, 1.03, Zone.TIE),
            (1.02, 1.20, Zone.UNCLEAR),
            (0.90, 0.98, Zone.UNCLEAR),
            (0.80, 1.20, Zone.UNCLEAR),
        ],
    )
    def test_where_the_whole_interval_lies(self, low: float, high: float, expected: Zone) -> None:
        assert zone(Ratio(math.sqrt(low * high), low, high, 0.95, 200, 10)) is expected

    def test_what_is_ruled_out(self) -> None:
        """3 % slower can be a loss or a tie, for ever perhaps, but it is no win."""
        assert possible_zones(ratio(0.97, 0.02)) == {Zone.LOSE, Zone.TIE}
        assert possible_zones(ratio(1.0, 0.2)) == {Zone.WIN, Zone.LOSE, Zone.TIE}

    def test_insufficient_is_unclear(self) -> None:
        assert zone(INSUFFICIENT) is Zone.UNCLEAR
        assert possible_zones(INSUFFICIENT) == {Zone.WIN, Zone.LOSE, Zone.TIE}

    @given(some_ratio, DELTAS)
    def test_one_possible_zone_is_the_zone(self, some: Ratio, delta: float) -> None:
        possible = possible_zones(some, delta)
        assert possible
        assert Zone.UNCLEAR not in possible
        found = zone(some, delta)
        assert (found is Zone.UNCLEAR) == (len(possible) > 1)
        assert found is Zone.UNCLEAR or found in possible

    @given(some_ratio, DELTAS, st.floats(0.0, 1.0))
    def test_narrowing_rules_out_and_never_adds(self, some: Ratio, delta: float, by: float) -> None:
        assert some.high is not None
        narrower = ratio(some.estimate, math.log(some.high / some.estimate) * by)
        assert possible_zones(narrower, delta) <= possible_zones(some, delta)


class TestNoiseFloor:
    def test_the_larger_side(self) -> None:
        assert noise_floor(Ratio(1.0, 0.98, 1.01, 0.95, 200, 10)) == pytest.approx(1 / 0.98 - 1)
        assert noise_floor(Ratio(1.0, 0.99, 1.05, 0.95, 200, 10)) == pytest.approx(0.05)
        assert noise_floor(INSUFFICIENT) is None

    @given(st.floats(0.9, 1.1), st.floats(0.0, 0.2))
    def test_at_this_delta_an_arm_ties_with_itself(self, estimate: float, reach: float) -> None:
        same = ratio(estimate, reach)
        floor = noise_floor(same)
        assert floor is not None
        if floor >= 0:
            assert zone(same, floor + 1e-9) in (Zone.TIE, Zone.UNCLEAR)


class TestPairsNeeded:
    def test_a_clear_answer_needs_none(self) -> None:
        assert pairs_needed(ratio(1.5, 0.1)) == 0
        assert pairs_needed(ratio(1.0, 0.01)) == 0

    def test_half_the_width_takes_four_times_the_pairs(self) -> None:
        margin = math.log(1.10 / 1.03)
        needed = pairs_needed(ratio(1.10, 2 * margin, num_blocks=100, num_pairs=2000))
        assert needed is not None
        assert 3 * 2000 * 0.97 <= needed <= 3 * 2000 * 1.01  # a little less, for Student's quantile

    def test_few_blocks_gain_from_students_quantile_too(self) -> None:
        margin = math.log(1.10 / 1.03)
        needed = pairs_needed(ratio(1.10, 2 * margin, num_blocks=5, num_pairs=100))
        assert needed is not None
        assert 100 < needed < 200

    def test_insufficient_needs_the_missing_blocks(self) -> None:
        assert pairs_needed(INSUFFICIENT) == 40

    @pytest.mark.parametrize("estimate", [1.03, 0.97, 1.0301, 0.9699])
    def test_at_a_boundary_more_will_not_help(self, estimate: float) -> None:
        assert pairs_needed(ratio(estimate, 0.05)) is None

    @given(some_ratio, DELTAS)
    def test_properties(self, some: Ratio, delta: float) -> None:
        needed = pairs_needed(some, delta)
        assert (needed == 0) == (zone(some, delta) is not Zone.UNCLEAR)
        if needed:
            assert some.high is not None
            reach = math.log(some.high / some.estimate)
            shrunk = reach * math.sqrt(some.num_pairs / (some.num_pairs + needed))
            # Student's quantile does the rest, at most what it is at 5 blocks over the normal one.
            enough = ratio(some.estimate, shrunk / (2.7765 / 1.9599))
            assert zone(enough, delta) is not Zone.UNCLEAR
