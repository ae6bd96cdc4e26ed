"""How much faster the candidate is than the baseline, with an interval.

Two arms, measured in blocks that alternate; within a block both get the same prompts, and a pair
is what one prompt took in each. A ratio is a speedup: above 1 the candidate is better.

What is estimated is the median over the *traffic*, of which the prompts are a sample, and over
blocks like these: half of all pairs that could be measured here show a larger speedup. So both
the choice of prompts and what the machine did during a block count as chance. (Were the prompts
taken as given, the interval would be narrower and would say nothing about tomorrow's requests.)
Pairs of one block are not independent, however many there are: blocks carry the evidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from outdraft.stats.bootstrap import (
    ROUGHNESS_OF_PERCENTILES,
    Counts,
    Floats,
    Sample,
    Statistic,
    quantile_of_draws,
    standard_error,
)
from outdraft.stats.percentiles import interval_ranks

MIN_BLOCKS = 5
LEVEL = 0.95
DRAWS = 10_000


@dataclass(frozen=True, slots=True)
class Pair:
    """What one prompt took in both arms of a block, in any one unit; less is better."""

    prompt_id: str
    baseline: float
    candidate: float

    def __post_init__(self) -> None:
        _check_positive(self.baseline, self.candidate)


@dataclass(frozen=True, slots=True)
class Throughput:
    """Tokens per second of both arms in one block; more is better."""

    baseline: float
    candidate: float

    def __post_init__(self) -> None:
        _check_positive(self.baseline, self.candidate)


@dataclass(frozen=True, slots=True)
class Ratio:
    """A speedup and its interval. Fewer than MIN_BLOCKS blocks are insufficient for one: None."""

    estimate: float
    low: float | None
    high: float | None
    level: float
    num_pairs: int
    num_blocks: int


def median_ratio(
    blocks: Sequence[Sequence[Pair]], *, level: float = LEVEL, draws: int = DRAWS, seed: int = 0
) -> Ratio:
    """The median of the pairs' ratios. Blocks may differ in size; empty ones do not count."""
    pairs, sample = _flat(blocks)
    logs = np.log([pair.baseline / pair.candidate for pair in pairs])
    order = np.argsort(logs)
    ordered = logs[order]

    def median(counts: Counts) -> Floats:
        return quantile_of_draws(ordered, counts[:, order], 0.5)

    return _ratio(median, sample, level, draws, seed, ROUGHNESS_OF_PERCENTILES)


def percentile_ratio(
    blocks: Sequence[Sequence[Pair]],
    q: float,
    *,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> Ratio | None:
    """The ratio of the arms' own percentiles, such as of their P99s, whichever prompts make them.

    None where so many values cannot bracket that percentile (`percentile_interval`).
    """
    pairs, sample = _flat(blocks)
    if interval_ranks(len(pairs), q, level) is None:
        return None
    baseline = np.log([pair.baseline for pair in pairs])
    candidate = np.log([pair.candidate for pair in pairs])
    over_order, under_order = np.argsort(baseline), np.argsort(candidate)
    over, under = baseline[over_order], candidate[under_order]

    def difference(counts: Counts) -> Floats:
        return quantile_of_draws(over, counts[:, over_order], q) - quantile_of_draws(
            under, counts[:, under_order], q
        )

    return _ratio(difference, sample, level, draws, seed, ROUGHNESS_OF_PERCENTILES)


def throughput_ratio(
    blocks: Sequence[Throughput], *, level: float = LEVEL, draws: int = DRAWS, seed: int = 0
) -> Ratio:
    """The geometric mean of the blocks' throughput ratios: a block is one measurement."""
    if not blocks:
        raise ValueError("no blocks")
    logs = np.log([block.candidate / block.baseline for block in blocks])
    each = np.arange(len(blocks))

    def mean(counts: Counts) -> Floats:
        found: Floats = counts @ logs / counts.sum(axis=1)
        return found

    return _ratio(mean, Sample(each, each), level, draws, seed, 0.0)


def _ratio(
    statistic: Statistic, sample: Sample, level: float, draws: int, seed: int, roughness: float
) -> Ratio:
    """The estimate and interval of a statistic that is the logarithm of a ratio."""
    if not 0 < level < 1:
        raise ValueError(f"level is {level}, must lie between 0 and 1")
    estimate = float(statistic(np.ones((1, sample.num_pairs), int))[0])
    low = high = None
    if sample.num_blocks >= MIN_BLOCKS:
        error = standard_error(sample, statistic, draws=draws, seed=seed, roughness=roughness)
        reach = float(special.stdtrit(error.df, (1 + level) / 2)) * error.size
        low, high = math.exp(estimate - reach), math.exp(estimate + reach)
    return Ratio(math.exp(estimate), low, high, level, sample.num_pairs, sample.num_blocks)


def _flat(blocks: Sequence[Sequence[Pair]]) -> tuple[list[Pair], Sample]:
    """All pairs in a row, and which block and prompt each is of."""
    filled = [block for block in blocks if block]
    pairs = [pair for block in filled for pair in block]
    if not pairs:
        raise ValueError("no pairs")
    block_of = np.repeat(np.arange(len(filled)), [len(block) for block in filled])
    _, prompt_of = np.unique([pair.prompt_id for pair in pairs], return_inverse=True)
    return pairs, Sample(block_of, prompt_of)


def _check_positive(*values: float) -> None:
    if not all(math.isfinite(value) and value > 0 for value in values):
        raise ValueError(f"measured {values}, must be positive numbers")
