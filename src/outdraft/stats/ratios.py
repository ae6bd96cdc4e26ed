"""How much faster the candidate is than the baseline, with an interval.

Two arms are measured in alternating blocks. Within a block both get the same prompts, and a pair
is what one prompt took in each arm. A ratio is a speedup: above 1 the candidate is better.

The estimate is a geometric mean over the *traffic*, of which the prompts are a sample, and over
blocks like these. So both the choice of prompts and the state of the machine during a block count
as chance. (With the prompts taken as fixed, the interval would be narrower and would say nothing
about tomorrow's requests.) Pairs of one block are not independent, however many there are: the
number of blocks carries the evidence.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from outdraft.stats.bootstrap import (
    ROUGHNESS_OF_PERCENTILES,
    Statistic,
    quantile_of_draws,
    standard_error,
)
from outdraft.stats.clusters import Clusters, Counts, Floats, error_of_mean
from outdraft.stats.percentiles import interval_ranks

MIN_BLOCKS = 5
LEVEL = 0.95
TRIMMED = 0.05  # of the pairs, on either side
DRAWS = 10_000
_ARMS = ("baseline", "candidate")
MAX_LOG = 709.0  # its exponential is a float; a bound that high says nothing, but is a number


@dataclass(frozen=True, slots=True)
class Pair:
    """What one prompt took in both arms of a block, in any one unit; less is better."""

    prompt_id: str
    baseline: float
    candidate: float
    category: str = ""

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

    @property
    def blocks_text(self) -> str:
        return "1 block" if self.num_blocks == 1 else f"{self.num_blocks} blocks"


def mean_ratio(blocks: Sequence[Sequence[Pair]], *, level: float = LEVEL) -> Ratio:
    """The geometric mean of the pairs' ratios without the lowest and the highest 5 % of them.
    Blocks may differ in size; empty ones are ignored.

    A few wild requests do not move it. Where every prompt gains differently, as in real traffic,
    the median would need twice the pairs for an interval of the same width. The error follows from
    the values with both tails pulled in (Tukey and McLaughlin, 1963). It is too small where a few
    of very few prompts gain by far (`benchmarks/coverage.py`, recurring).
    """
    pairs, clusters = _flatten(blocks)
    logs = np.log([pair.baseline / pair.candidate for pair in pairs])
    num_left_out = int(TRIMMED * len(logs))
    kept = np.sort(logs)[num_left_out : len(logs) - num_left_out]
    error = None
    if clusters.num_blocks >= MIN_BLOCKS:
        size, df = error_of_mean(np.clip(logs, kept[0], kept[-1]), clusters)
        error = size * len(logs) / len(kept), df
    return _make_ratio(float(kept.mean()), error, clusters, level)


def percentile_ratio(
    blocks: Sequence[Sequence[Pair]],
    q: float,
    *,
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> Ratio | None:
    """The ratio of the two arms' percentiles, such as their P99s, whichever prompts they come from.

    None if there are too few values for an interval of that percentile (`percentile_interval`).
    """
    pairs, clusters = _flatten(blocks)
    if interval_ranks(len(pairs), q, level) is None:
        return None
    baseline = _quantile(np.log([pair.baseline for pair in pairs]), q)
    candidate = _quantile(np.log([pair.candidate for pair in pairs]), q)

    def difference(counts: Counts) -> Floats:
        return baseline(counts) - candidate(counts)

    log = float(difference(np.ones((1, clusters.num_pairs), int))[0])
    error = None
    if clusters.num_blocks >= MIN_BLOCKS:
        error = standard_error(
            clusters, difference, draws=draws, seed=seed, roughness=ROUGHNESS_OF_PERCENTILES
        )
    return _make_ratio(log, error, clusters, level)


def throughput_ratio(blocks: Sequence[Throughput], *, level: float = LEVEL) -> Ratio:
    """The geometric mean of the blocks' throughput ratios; each block is one measurement."""
    return _ratio_of_blocks([block.candidate / block.baseline for block in blocks], level)


def total_ratio(blocks: Sequence[Sequence[Pair]], *, level: float = LEVEL) -> Ratio:
    """All that the baseline took over all that the candidate took, block by block.

    Where a few pairs lose much and many gain a little, `mean_ratio` is above 1 and this below: it
    is what a server with all slots busy writes more or less."""
    filled = [block for block in blocks if block]
    sums = [[sum(getattr(pair, arm) for pair in block) for block in filled] for arm in _ARMS]
    ratio = _ratio_of_blocks([one / other for one, other in zip(*sums, strict=True)], level)
    return replace(ratio, num_pairs=sum(map(len, filled)))


def _ratio_of_blocks(ratios: Sequence[float], level: float) -> Ratio:
    if not ratios:
        raise ValueError("no blocks")
    each = np.arange(len(ratios))
    logs, clusters = np.log(ratios), Clusters(each, each)
    error = error_of_mean(logs, clusters) if len(ratios) >= MIN_BLOCKS else None
    return _make_ratio(float(logs.mean()), error, clusters, level)


def _quantile(values: Floats, q: float) -> Statistic:
    order = np.argsort(values)
    ordered = values[order]
    return lambda counts: quantile_of_draws(ordered, counts[:, order], q)


def _make_ratio(
    log: float, error: tuple[float, float] | None, clusters: Clusters, level: float
) -> Ratio:
    """From the logarithm of a ratio, its standard error and degrees of freedom."""
    if not 0 < level < 1:
        raise ValueError(f"level is {level}, must lie between 0 and 1")
    low = high = None
    if error is not None:
        size, df = error
        reach = float(special.stdtrit(df, (1 + level) / 2)) * size
        low, high = math.exp(log - reach), math.exp(min(log + reach, MAX_LOG))
    return Ratio(math.exp(log), low, high, level, clusters.num_pairs, clusters.num_blocks)


def _flatten(blocks: Sequence[Sequence[Pair]]) -> tuple[list[Pair], Clusters]:
    """All pairs in one list, and the block and prompt of each."""
    filled = [block for block in blocks if block]
    pairs = [pair for block in filled for pair in block]
    if not pairs:
        raise ValueError("no pairs")
    block_of = np.repeat(np.arange(len(filled)), [len(block) for block in filled])
    _, prompt_of = np.unique([pair.prompt_id for pair in pairs], return_inverse=True)
    _, category_of = np.unique([pair.category for pair in pairs], return_inverse=True)
    return pairs, Clusters(block_of, prompt_of, category_of)


def _check_positive(*values: float) -> None:
    if not all(math.isfinite(value) and value > 0 for value in values):
        raise ValueError(f"measured {values}, must be positive numbers")
