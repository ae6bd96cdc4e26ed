"""Ratios with intervals: the definitions by hand, properties, and the bootstrap against numpy."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from outdraft.stats.bootstrap import quantile_of_draws, standard_error
from outdraft.stats.clusters import Clusters, error_of_mean
from outdraft.stats.percentiles import percentile
from outdraft.stats.ratios import (
    MIN_BLOCKS,
    Pair,
    Ratio,
    Throughput,
    mean_ratio,
    percentile_ratio,
    throughput_ratio,
    total_ratio,
)

FEW = 300  # draws where the width does not matter
SECONDS = st.floats(1e-3, 1e3)
Blocks = list[list[Pair]]


def made(num_blocks: int, num_pairs: int, *, speedup: float = 1.0, seed: int = 0) -> Blocks:
    rng = np.random.default_rng(seed)
    noise = rng.normal(0, 0.1, (2, num_blocks, num_pairs))
    return [
        [
            Pair(f"{row} {column}", speedup * math.exp(over), math.exp(under))
            for column, (over, under) in enumerate(zip(*arms, strict=True))
        ]
        for row, arms in enumerate(zip(*noise, strict=True))
    ]


@st.composite
def ragged(draw: st.DrawFn, min_blocks: int = MIN_BLOCKS) -> Blocks:
    sizes = draw(st.lists(st.integers(1, 6), min_size=min_blocks, max_size=8))
    prompts = st.integers(0, 40).map(str)  # some come again
    return [[Pair(draw(prompts), draw(SECONDS), draw(SECONDS)) for _ in range(n)] for n in sizes]


def bounds(ratio: Ratio) -> tuple[float, float]:
    assert ratio.low is not None
    assert ratio.high is not None
    return ratio.low, ratio.high


class TestMeanRatio:
    def test_it_is_the_mean_of_the_logarithms(self) -> None:
        pairs = [Pair("a", 2.0, 1.0), Pair("b", 9.0, 3.0), Pair("c", 1.0, 2.0)]
        ratio = mean_ratio([pairs[:1], pairs[1:]])
        assert ratio.estimate == pytest.approx((2.0 * 3.0 * 0.5) ** (1 / 3))
        assert replace(ratio, estimate=0) == Ratio(0, None, None, 0.95, num_pairs=3, num_blocks=2)

    def test_the_lowest_and_the_highest_twentieth_are_left_out(self) -> None:
        ratios = [1e-3, *[1.0] * 9, *[4.0] * 9, 1e9]
        blocks = [[Pair(f"{at}", each, 1.0)] for at, each in enumerate(ratios)]
        assert mean_ratio(blocks).estimate == pytest.approx(2.0)
        assert mean_ratio(blocks[1:]).estimate > 4, "19 pairs are too few to leave one out"

    @pytest.mark.parametrize("num_blocks", range(1, MIN_BLOCKS + 1))
    def test_few_blocks_are_insufficient_however_many_pairs(self, num_blocks: int) -> None:
        ratio = mean_ratio(made(num_blocks, 100))
        assert (ratio.low is None) == (ratio.high is None) == (num_blocks < MIN_BLOCKS)

    def test_no_pairs(self) -> None:
        with pytest.raises(ValueError, match="no pairs"):
            mean_ratio([[], []])

    @pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
    def test_times_are_positive_numbers(self, value: float) -> None:
        with pytest.raises(ValueError, match="must be positive"):
            Pair("a", 1.0, value)

    @pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
    def test_a_level_is_a_fraction(self, level: float) -> None:
        with pytest.raises(ValueError, match="between 0 and 1"):
            mean_ratio(made(5, 2), level=level)

    def test_a_bound_beyond_floats_stays_a_number(self) -> None:
        times = [1e-3, 1e3, 1e-3, 1e3, 1e-3]
        blocks = [[Pair("a", each, 1.0)] for each in times]
        low, high = bounds(mean_ratio(blocks, level=1 - 1e-12))
        assert low >= 0
        assert math.isfinite(high)

    @settings(max_examples=40, deadline=None)
    @given(ragged())
    def test_properties(self, blocks: Blocks) -> None:
        ratio = mean_ratio(blocks)
        low, high = bounds(ratio)
        ratios = [pair.baseline / pair.candidate for block in blocks for pair in block]
        num = len(ratios) // 20
        kept = sorted(np.log(ratios).tolist())[num : len(ratios) - num]
        assert ratio.estimate == pytest.approx(math.exp(sum(kept) / len(kept)))
        assert low <= ratio.estimate <= high
        assert (ratio.num_blocks, ratio.num_pairs) == (len(blocks), len(ratios))
        assert mean_ratio([*blocks, []]) == ratio
        wider = bounds(mean_ratio(blocks, level=0.99))
        assert wider[0] <= low <= high <= wider[1]

    @settings(max_examples=40, deadline=None)
    @given(ragged(), st.floats(0.1, 10.0))
    def test_units_do_not_matter_and_speedups_multiply(self, blocks: Blocks, by: float) -> None:
        plain = mean_ratio(blocks)
        other_unit = [
            [Pair(p.prompt_id, p.baseline * 7, p.candidate * 7) for p in b] for b in blocks
        ]
        faster = [[Pair(p.prompt_id, p.baseline * by, p.candidate) for p in b] for b in blocks]
        assert bounds(mean_ratio(other_unit)) == pytest.approx(bounds(plain), rel=1e-6)
        scaled = mean_ratio(faster)
        assert scaled.estimate == pytest.approx(plain.estimate * by)
        assert bounds(scaled) == pytest.approx([each * by for each in bounds(plain)], rel=1e-6)

    @settings(max_examples=20, deadline=None)
    @given(ragged())
    def test_arms_exchanged(self, blocks: Blocks) -> None:
        there = mean_ratio(blocks)
        swapped = [[Pair(p.prompt_id, p.candidate, p.baseline) for p in b] for b in blocks]
        back = mean_ratio(swapped)
        assert back.estimate == pytest.approx(1 / there.estimate)
        low, high = bounds(there)
        assert bounds(back) == pytest.approx((1 / high, 1 / low), rel=1e-6)

    def test_the_same_ratio_everywhere_is_certain(self) -> None:
        blocks = [[Pair(f"{row} {i}", 3.0, 2.0) for i in range(4)] for row in range(5)]
        assert bounds(mean_ratio(blocks)) == pytest.approx((1.5, 1.5))

    def test_one_wild_request_moves_nothing(self) -> None:
        blocks = made(8, 20)
        calm = bounds(mean_ratio(blocks))
        blocks[3][5] = Pair("wild", 1.0, 1000.0)
        assert bounds(mean_ratio(blocks)) == pytest.approx(calm, rel=0.02)

    def test_more_pairs_cannot_make_up_for_noisy_blocks(self) -> None:
        """A block's noise is common to its pairs: ten times the pairs, hardly less width."""

        def width(num_pairs: int) -> float:
            shifts = np.random.default_rng(0).normal(0, 0.1, 8)
            blocks = [
                [Pair(p.prompt_id, p.baseline * math.exp(shift), p.candidate) for p in block]
                for block, shift in zip(made(8, num_pairs), shifts, strict=True)
            ]
            low, high = bounds(mean_ratio(blocks))
            return math.log(high / low)

        assert width(200) > 0.7 * width(20)

    def test_prompts_that_recur_are_a_sample_too(self) -> None:
        """Twenty blocks of the same eight prompts say little about other prompts."""
        gains = np.random.default_rng(3).normal(0, 0.5, 8)

        def width(recurring: bool) -> float:
            blocks = [
                [
                    Pair(
                        f"{i}" if recurring else p.prompt_id,
                        p.baseline * math.exp(gains[i]),
                        p.candidate,
                    )
                    for i, p in enumerate(block)
                ]
                for block in made(20, 8)
            ]
            low, high = bounds(mean_ratio(blocks))
            return math.log(high / low)

        assert width(recurring=True) > 2 * width(recurring=False)

    def test_ten_thousand_draws_take_well_under_a_second(self) -> None:
        blocks = made(12, 40)
        start = time.process_time()
        assert percentile_ratio(blocks, 0.99) is not None
        assert time.process_time() - start < 1.0


class TestPercentileRatio:
    def test_none_where_the_sample_is_too_small(self) -> None:
        assert percentile_ratio(made(5, 73), 0.99, draws=FEW) is None
        ratio = percentile_ratio(made(5, 74), 0.99, draws=FEW)
        assert ratio is not None
        assert ratio.num_pairs == 370
        assert percentile_ratio(made(5, 74), 0.99, level=0.99, draws=FEW) is None

    def test_it_compares_the_arms_own_percentiles(self) -> None:
        blocks = made(6, 80, speedup=1.2)
        ratio = percentile_ratio(blocks, 0.99)
        assert ratio is not None
        arms = zip(*((p.baseline, p.candidate) for block in blocks for p in block), strict=True)
        over, under = (percentile(np.log(arm).tolist(), 0.99) for arm in arms)
        assert ratio.estimate == pytest.approx(math.exp(over - under))
        low, high = bounds(ratio)
        assert low < ratio.estimate < high

    def test_too_few_blocks_give_no_interval(self) -> None:
        ratio = percentile_ratio(made(2, 300), 0.99)
        assert ratio is not None
        assert (ratio.low, ratio.high) == (None, None)


class TestTotalRatio:
    def test_a_few_that_lose_much_outweigh_many_that_gain_a_little(self) -> None:
        block = [Pair(str(i), 10.0, 8.0) for i in range(18)]
        block += [Pair(str(i), 10.0, 40.0) for i in range(18, 20)]
        total = total_ratio([block] * 5)
        assert total.estimate == pytest.approx(200 / (18 * 8 + 80))
        assert (total.num_blocks, total.num_pairs) == (5, 100)
        assert mean_ratio([block] * 5).estimate > 1 > total.estimate

    def test_blocks_are_its_units(self) -> None:
        logs = np.random.default_rng(0).normal(0.2, 0.05, 8)
        blocks = [[Pair("a", math.exp(each), 1.0), Pair("b", math.exp(each), 1.0)] for each in logs]
        rates = [Throughput(1.0, math.exp(each)) for each in logs]
        assert bounds(total_ratio(blocks)) == pytest.approx(bounds(throughput_ratio(rates)))

    def test_few_blocks_are_insufficient(self) -> None:
        assert total_ratio([[Pair("a", 2.0, 1.0)]] * 4).low is None

    def test_no_pairs(self) -> None:
        with pytest.raises(ValueError, match="no blocks"):
            total_ratio([[]])


class TestThroughputRatio:
    def test_more_is_better(self) -> None:
        ratio = throughput_ratio([Throughput(100.0, 150.0)] * 5)
        assert ratio.estimate == pytest.approx(1.5)
        assert bounds(ratio) == pytest.approx((1.5, 1.5))
        assert (ratio.num_blocks, ratio.num_pairs) == (5, 5)

    def test_it_agrees_with_students_interval(self) -> None:
        logs = np.random.default_rng(0).normal(0.2, 0.05, 8)
        ratio = throughput_ratio([Throughput(1.0, math.exp(each)) for each in logs])
        reach = 2.3646 * logs.std(ddof=1) / math.sqrt(8)
        low, high = bounds(ratio)
        assert math.log(high / low) / 2 == pytest.approx(reach, rel=0.05)
        assert math.log(ratio.estimate) == pytest.approx(logs.mean())

    def test_few_blocks_are_insufficient(self) -> None:
        assert throughput_ratio([Throughput(1.0, 2.0)] * 4).low is None

    def test_no_blocks(self) -> None:
        with pytest.raises(ValueError, match="no blocks"):
            throughput_ratio([])

    def test_positive(self) -> None:
        with pytest.raises(ValueError, match="must be positive"):
            Throughput(0.0, 1.0)


class TestBootstrap:
    @settings(max_examples=60, deadline=None)
    @given(
        st.lists(st.floats(-5, 5), min_size=1, max_size=12),
        st.data(),
        st.sampled_from((0.5, 0.9, 0.99)),
    )
    def test_quantiles_of_counted_values(
        self, values: list[float], data: st.DataObject, q: float
    ) -> None:
        ordered = np.sort(values)
        size = len(values)
        counts = np.array(
            data.draw(st.lists(st.integers(0, 3), min_size=size, max_size=size).filter(any))
        )
        found = quantile_of_draws(ordered, counts[None, :], q)
        assert found[0] == pytest.approx(np.quantile(np.repeat(ordered, counts), q), abs=1e-9)

    def test_the_error_of_a_mean_is_known(self) -> None:
        """Blocks of pairs: the spread of block means over the root of their number."""
        rng = np.random.default_rng(0)
        values = rng.normal(0, 1, (12, 10)) + rng.normal(0, 0.5, (12, 1))
        flat = values.ravel()
        sample = Clusters(np.repeat(np.arange(12), 10), np.arange(120))
        size, df = standard_error(
            sample, lambda counts: counts @ flat / counts.sum(axis=1), draws=20_000, seed=0
        )
        assert size == pytest.approx(values.mean(1).std(ddof=1) / math.sqrt(12), rel=0.03)
        assert df == pytest.approx(11)

    def test_categories_that_differ_are_no_chance(self) -> None:
        """Eight of them in turn, far apart: only what differs within them counts."""
        rng = np.random.default_rng(0)
        category_of = np.arange(80) % 8
        values = rng.normal(0, 0.1, 80) + category_of
        each = np.arange(80)
        size, df = error_of_mean(values, Clusters(each, each, category_of))
        assert size == pytest.approx(0.1 / math.sqrt(80), rel=0.2)
        assert df == 72
        blind, _ = error_of_mean(values, Clusters(each, each))
        assert blind > 15 * size
        few = Clusters(each[:15], each[:15], category_of[:15])
        assert error_of_mean(values[:15], few)[0] > 10 * size, "one of them has a single pair"

    @pytest.mark.parametrize("size", [1, 2, 8])
    def test_the_error_is_right_whatever_the_blocks(self, size: int) -> None:
        """Three pairs of each of eight categories, in blocks of any size."""
        rng = np.random.default_rng(size)
        category_of, each = np.arange(24) % 8, np.arange(24)
        clusters = Clusters(each // size, each, category_of)
        squares, means = [], []
        for _ in range(3000):
            block_noise = rng.normal(0, 0.2, 24 // size)[each // size]
            values = rng.normal(0, 1, 24) + category_of + block_noise
            squares.append(error_of_mean(values, clusters)[0] ** 2)
            means.append(values.mean())
        assert np.mean(squares) == pytest.approx(np.var(means), rel=0.1)

    @pytest.mark.parametrize("num_prompts", [1, 2, 3, 6])
    def test_few_prompts_of_a_category_that_recur_are_a_sample_too(self, num_prompts: int) -> None:
        """Eight categories, each with so many prompts that come five times."""
        rng, each = np.random.default_rng(num_prompts), np.arange(40 * num_prompts)
        prompt_of = each % (8 * num_prompts)
        clusters = Clusters(each // 2, prompt_of, prompt_of % 8)
        held = 0
        for _ in range(600):
            of_prompt = rng.normal(0, 0.2, 8 * num_prompts)
            values = of_prompt[prompt_of] + rng.normal(0, 0.05, len(each))
            size, df = error_of_mean(values, clusters)
            held += abs(values.mean()) < size * special.stdtrit(df, 0.975)
        assert held > 0.92 * 600

    def test_the_error_of_a_mean_over_prompts_that_recur(self) -> None:
        """Prompts in every block: the two-way analysis of variance gives the error of the mean."""
        rng = np.random.default_rng(0)
        values = rng.normal(0, 1, (1, 10)) + rng.normal(0, 0.3, (12, 10))
        flat = values.ravel()
        sample = Clusters(np.repeat(np.arange(12), 10), np.tile(np.arange(10), 12))
        size, df = standard_error(
            sample, lambda counts: counts @ flat / counts.sum(axis=1), draws=20_000, seed=0
        )
        expected = math.sqrt(
            values.mean(1).var(ddof=1) / 12
            + values.mean(0).var(ddof=1) / 10
            - flat.var(ddof=1) / 120
        )
        assert size == pytest.approx(expected, rel=0.03)
        assert 8 < df < 11
