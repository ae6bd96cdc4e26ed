"""Do intervals cover, and are planted speedups judged rightly? On made-up comparisons."""

from __future__ import annotations

import pytest
from benchmarks.coverage import (
    LOOKS,
    MIXED,
    NOISY,
    POPULATIONS,
    QUIET,
    SHAPES,
    TAIL,
    USUAL,
    VARIED,
    Population,
    coverage,
    covers,
    first_clear,
    measure,
    median_width,
    naive_coverage,
    percentile_coverage,
    ratios_at_looks,
    throughput_coverage,
    true_percentile_ratio,
)

from outdraft.stats.ratios import Ratio, mean_ratio, percentile_ratio
from outdraft.stats.sequential import Zone, pairs_needed, possible_zones, zone

CALM = Population("calm", 0.01, pair_noise=0.03)
MANY = 2000  # simulations of means, which are quick: right to 0.5 %
ENOUGH = 600  # simulations: the coverage found is right to 0.9 %, the bounds are 2 % away


def judged(of: Population, speedup: float, shape: tuple[int, int], seed: int = 0) -> Ratio:
    return mean_ratio(measure(of, shape, seed, speedup))


@pytest.mark.parametrize("of", [NOISY, MIXED], ids=lambda of: of.name)
def test_coverage(of: Population) -> None:
    assert 0.93 <= coverage(of, (8, 12), 1000) <= 0.97


def test_an_arm_against_itself_on_a_noisy_machine() -> None:
    ratios = [judged(NOISY, 1.0, (10, 20), seed) for seed in range(20)]
    assert sum(covers(ratio, 1.0) for ratio in ratios) >= 18
    assert sum(zone(ratio) in (Zone.WIN, Zone.LOSE) for ratio in ratios) <= 1


@pytest.mark.parametrize(
    ("speedup", "expected"),
    [
        (0.8, {Zone.LOSE}),
        (0.97, {Zone.LOSE, Zone.TIE}),  # it stands at the boundary between those two
        (1.0, {Zone.TIE}),
        (1.05, {Zone.WIN}),
        (1.5, {Zone.WIN}),
    ],
)
@pytest.mark.parametrize("seed", range(1, 5))
def test_planted_speedups(speedup: float, expected: set[Zone], seed: int) -> None:
    ratio = judged(CALM, speedup, (20, 40), seed)
    assert possible_zones(ratio) == expected


def test_the_mean_wins_and_the_tail_loses() -> None:
    blocks = measure(TAIL, (20, 40), 0, 1.3)
    assert 1.3 * true_percentile_ratio(TAIL, 0.99) < 0.8
    tail = percentile_ratio(blocks, 0.99)
    assert tail is not None
    assert zone(mean_ratio(blocks)) is Zone.WIN
    assert zone(tail) is Zone.LOSE
    assert percentile_ratio(blocks[:5], 0.99) is None  # 200 requests say nothing about a P99


def test_clear_answers_come_early_and_wrong_ones_hardly_ever() -> None:
    looked = [ratios_at_looks(USUAL, 12, seed) for seed in range(60)]
    for speedup, right in ((0.75, Zone.LOSE), (1.5, Zone.WIN)):
        ends = [first_clear(ratios, speedup) for ratios in looked]
        assert {end[0] for end in ends} == {right}
        assert sum(end[1] for end in ends) / len(ends) < LOOKS[1].num_blocks
    ends = [first_clear(ratios, 1.0) for ratios in looked]
    assert sum(end[0] in (Zone.WIN, Zone.LOSE) for end in ends) <= 1


def test_so_many_more_pairs_do_make_it_clear() -> None:
    """It is an estimate: true for some half of those it is made for."""
    asked = cleared = 0
    for seed in range(40):
        needed = pairs_needed(judged(CALM, 1.06, (8, 6), seed))
        if needed:
            asked += 1
            more = 8 + -(-needed // 6)
            cleared += zone(judged(CALM, 1.06, (more, 6), seed + 1000)) is Zone.WIN
    assert asked >= 20
    assert cleared >= 0.4 * asked


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("of", POPULATIONS, ids=lambda of: of.name)
def test_coverage_everywhere(of: Population, shape: tuple[int, int]) -> None:
    """With few prompts, of which a few gain by far, no interval can know how many there are: with
    8 of them one sample in six has none."""
    least = {8: 0.79, 20: 0.9, 40: 0.91}[shape[1]] if of.recurring else 0.93
    assert least <= coverage(of, shape, MANY) <= 0.975


@pytest.mark.slow
def test_nothing_less_would_do() -> None:
    """Pairs of a block are not independent, and medians scatter more where all prompts differ."""
    assert naive_coverage(QUIET, (20, 8), 400) > 0.93
    assert naive_coverage(NOISY, (5, 40), 400) < 0.8
    assert median_width(VARIED, (20, 8), 400) > 1.1


@pytest.mark.slow
@pytest.mark.parametrize("of", [QUIET, USUAL, NOISY], ids=lambda of: of.name)
def test_throughput_coverage(of: Population) -> None:
    assert 0.93 <= throughput_coverage(of, (12, 20), ENOUGH) <= 0.975


@pytest.mark.slow
@pytest.mark.parametrize("of", [USUAL, TAIL], ids=lambda of: of.name)
def test_percentile_coverage(of: Population) -> None:
    """Rather too often than too rarely: extremes are rough."""
    assert 0.93 <= percentile_coverage(of, (12, 40), 0.99, ENOUGH) <= 0.995


@pytest.mark.slow
@pytest.mark.parametrize("of", [QUIET, USUAL, MIXED], ids=lambda of: of.name)
def test_all_looks_together_miss_in_five_percent(of: Population) -> None:
    looked = [ratios_at_looks(of, 20, seed) for seed in range(ENOUGH)]
    missed = sum(not all(covers(ratio, 1.0) for ratio in ratios) for ratios in looked)
    assert missed <= 0.05 * ENOUGH
    for speedup, wrong in (
        (0.8, {Zone.WIN, Zone.TIE}),
        (0.97, {Zone.WIN}),
        (1.0, {Zone.WIN, Zone.LOSE}),
        (1.05, {Zone.LOSE, Zone.TIE}),
        (1.5, {Zone.LOSE, Zone.TIE}),
    ):
        ends = [first_clear(ratios, speedup)[0] for ratios in looked]
        assert sum(end in wrong for end in ends) <= 0.01 * ENOUGH
