"""Do the intervals of `outdraft.stats` cover as often as they say, and are arms judged rightly?

    python benchmarks/coverage.py                      # 200 simulations a line
    python benchmarks/coverage.py --simulations 1000   # some minutes

Comparisons are made up, with a known truth, and judged. In each arm of a block everything takes a
common factor longer or shorter (`block_noise`), every request has heavy-tailed noise of its own,
and one in fifty takes three times as long. In a `mixed` population prompts differ in their true
ratio, a fifth of them by far, as they do under speculation: code flies, prose does not.

The truth is the trimmed mean of such a population, found from 400,000 pairs. `pairs` takes all
pairs as independent, `blocks` is what `mean_ratio` gives. `median` is how much more medians scatter
than trimmed means, and so how much wider their intervals are.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from outdraft.stats.ratios import (
    TRIMMED,
    Pair,
    Ratio,
    Throughput,
    mean_ratio,
    percentile_ratio,
    throughput_ratio,
)
from outdraft.stats.sequential import Zone, plan_looks, zone

SIMULATIONS = 200
DRAWS = 1000  # of each bootstrap; a tenth of the default, for speed
SHAPES = ((5, 8), (5, 40), (12, 20), (20, 8), (20, 40))  # blocks, pairs in each
PLANTED = (0.8, 0.97, 1.0, 1.05, 1.5)
LOOKS = plan_looks(20)
Floats = NDArray[np.float64]
Blocks = list[list[Pair]]


@dataclass(frozen=True)
class Population:
    """Where pairs come from. Noise is in logarithms: 0.03 is 3 %."""

    name: str
    block_noise: float
    pair_noise: float = 0.05
    mixed: bool = False
    varied: bool = False  # every prompt has a gain of its own, as in recorded runs
    recurring: bool = False  # every block has the same prompts
    slow_share: float = 0.0  # of the candidate's requests, which take eight times as long


QUIET = Population("quiet", 0.0)
USUAL = Population("usual", 0.03)
NOISY = Population("noisy", 0.1)
MIXED = Population("mixed", 0.03, mixed=True)
MIXED_NOISY = Population("mixed, noisy", 0.1, mixed=True)
VARIED = Population("varied", 0.03, varied=True)
RECURRING = Population("mixed, recurring", 0.03, mixed=True, recurring=True)
TAIL = Population("slow tail", 0.02, slow_share=0.04)
POPULATIONS = (QUIET, USUAL, NOISY, VARIED, MIXED, MIXED_NOISY, RECURRING)


def measure(of: Population, shape: tuple[int, int], seed: int, speedup: float = 1.0) -> Blocks:
    """One made-up comparison whose true mean ratio is `speedup`."""
    rng = np.random.default_rng((seed, *shape, *of.name.encode()))
    baseline, candidate = _times(of, shape, rng)
    candidate *= np.exp(_centre(of)) / speedup
    return [
        [
            Pair(f"{column}" if of.recurring else f"{row} {column}", *pair)
            for column, pair in enumerate(zip(*arms, strict=True))
        ]
        for row, arms in enumerate(zip(baseline.tolist(), candidate.tolist(), strict=True))
    ]


def _times(
    of: Population, shape: tuple[int, int], rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """What the requests took in the baseline and the candidate, (blocks, pairs) each."""
    prompts = (1 if of.recurring else shape[0], shape[1])
    length = rng.normal(0, 0.4, prompts)
    gain = rng.normal(0, 0.05, prompts)
    if of.varied:
        return _times_varied(of, shape, rng, length)
    gain += np.where(rng.random(prompts) < 0.2, rng.normal(0.6, 0.15, prompts), 0.0)
    slow = np.log(8) * (rng.random(shape) < of.slow_share)
    baseline = np.exp(length + _noise(of, shape, rng))
    return baseline, np.exp(length - gain * of.mixed + slow + _noise(of, shape, rng))


def _times_varied(
    of: Population, shape: tuple[int, int], rng: np.random.Generator, length: Floats
) -> tuple[Floats, Floats]:
    gain = rng.normal(0, 0.25, length.shape)
    return np.exp(length + _noise(of, shape, rng)), np.exp(length - gain + _noise(of, shape, rng))


def _noise(of: Population, shape: tuple[int, int], rng: np.random.Generator) -> Floats:
    of_block = rng.normal(0, of.block_noise, (shape[0], 1))
    outliers = np.log(3) * (rng.random(shape) < 0.02)
    found: Floats = of_block + of.pair_noise * rng.standard_t(3, shape) + outliers
    return found


@cache
def _centre(of: Population) -> float:
    """The trimmed mean of the logarithms of the ratios."""
    if not of.mixed and not of.slow_share:
        return 0.0
    baseline, candidate = _times(
        replace(of, recurring=False), (20_000, 20), np.random.default_rng(0)
    )
    return _trimmed_mean(np.log(baseline / candidate).ravel())


@cache
def true_percentile_ratio(of: Population, q: float) -> float:
    baseline, candidate = _times(of, (20_000, 20), np.random.default_rng(1))
    candidate *= np.exp(_centre(of))
    return float(np.quantile(baseline, q) / np.quantile(candidate, q))


def covers(ratio: Ratio, value: float) -> bool:
    return ratio.low is not None and ratio.high is not None and ratio.low <= value <= ratio.high


def coverage(of: Population, shape: tuple[int, int], simulations: int, first: int = 0) -> float:
    """How often the interval of the mean ratio holds the truth."""
    seeds = range(first, first + simulations)
    ratios = [mean_ratio(measure(of, shape, s)) for s in seeds]
    return sum(covers(ratio, 1.0) for ratio in ratios) / simulations


def naive_coverage(of: Population, shape: tuple[int, int], simulations: int) -> float:
    """The same if every pair were a block of its own."""
    held = 0
    for seed in range(simulations):
        pairs = [[pair] for block in measure(of, shape, seed) for pair in block]
        held += covers(mean_ratio(pairs), 1.0)
    return held / simulations


def median_width(of: Population, shape: tuple[int, int], simulations: int) -> float:
    """How much more medians scatter than trimmed means."""
    logs = [
        np.log(
            [pair.baseline / pair.candidate for block in measure(of, shape, s) for pair in block]
        )
        for s in range(simulations)
    ]
    spread = np.std([np.median(each) for each in logs]), np.std(list(map(_trimmed_mean, logs)))
    return float(spread[0] / spread[1])


def _trimmed_mean(values: Floats) -> float:
    num = int(TRIMMED * len(values))
    return float(np.sort(values)[num : len(values) - num].mean())


def throughput_coverage(of: Population, shape: tuple[int, int], simulations: int) -> float:
    """Of a block's throughput: requests over the time they took."""
    held = 0
    for seed in range(simulations):
        blocks = [
            Throughput(1 / sum(p.baseline for p in block), 1 / sum(p.candidate for p in block))
            for block in measure(of, shape, seed)
        ]
        held += covers(throughput_ratio(blocks), 1.0)
    return held / simulations


def percentile_coverage(
    of: Population, shape: tuple[int, int], q: float, simulations: int
) -> float:
    truth, held = true_percentile_ratio(of, q), 0
    for seed in range(simulations):
        ratio = percentile_ratio(measure(of, shape, seed), q, draws=DRAWS, seed=seed)
        held += ratio is not None and covers(ratio, truth)
    return held / simulations


def ratios_at_looks(of: Population, num_pairs: int, seed: int) -> list[Ratio]:
    blocks = measure(of, (LOOKS[-1].num_blocks, num_pairs), seed)
    return [mean_ratio(blocks[: look.num_blocks], level=look.level) for look in LOOKS]


def first_clear(ratios: Sequence[Ratio], speedup: float) -> tuple[Zone, int]:
    """The zone and the blocks where the comparison stops, had the candidate been so much faster.

    A faster candidate only shifts the ratios, so one simulation serves for every speedup.
    """
    found = Zone.UNCLEAR
    for ratio in ratios:
        assert ratio.low is not None
        assert ratio.high is not None
        found = zone(replace(ratio, low=ratio.low * speedup, high=ratio.high * speedup))
        if found is not Zone.UNCLEAR:
            return found, ratio.num_blocks
    return found, ratios[-1].num_blocks


def report(simulations: int) -> Iterator[str]:
    yield f"mean ratio, 95 % interval, {simulations} simulations: covers the truth in %"
    yield f"{'population':18} {'blocks × pairs':>14} {'pairs':>7} {'blocks':>7} {'median':>7}"
    for of in POPULATIONS:
        for shape in SHAPES:
            naive = naive_coverage(of, shape, simulations)
            held, wider = coverage(of, shape, simulations), median_width(of, shape, simulations)
            figures = f"{naive:7.1%} {held:7.1%} {wider:7.2f}"
            yield f"{of.name:18} {shape[0]:8} × {shape[1]:3} {figures}"
    yield "\nthroughput ratio, P99 ratio (12 blocks; 20 and 40 pairs)"
    for of in (QUIET, USUAL, NOISY, TAIL):
        throughput = "" if of is TAIL else f"{throughput_coverage(of, (12, 20), simulations):.1%}"
        tail = percentile_coverage(of, (12, 40), 0.99, simulations)
        yield f"{of.name:18} {throughput:>7} {tail:7.1%}"
    places = ", ".join(f"{look.num_blocks} blocks at {look.level:.2%}" for look in LOOKS)
    yield f"\nlooks: {places}; 20 pairs a block; zones reached, mean number of blocks"
    for of in (QUIET, USUAL, MIXED, NOISY):
        looked = [ratios_at_looks(of, 20, seed) for seed in range(simulations)]
        missed = sum(not all(covers(each, 1.0) for each in ratios) for ratios in looked)
        yield f"{of.name}: some look's interval misses the truth in {missed / simulations:.1%}"
        for speedup in PLANTED:
            ends = [first_clear(ratios, speedup) for ratios in looked]
            counts = Counter(end[0] for end in ends)
            zones = ", ".join(f"{name} {counts[name] / simulations:.1%}" for name in counts)
            yield f"  planted {speedup:4}: {np.mean([end[1] for end in ends]):4.1f} blocks; {zones}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--simulations", type=int, default=SIMULATIONS)
    start = time.perf_counter()
    for line in report(parser.parse_args().simulations):
        print(line, flush=True)
    print(f"\n{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
