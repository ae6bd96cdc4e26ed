"""The hierarchical bootstrap, blocks then pairs, and the standard error that follows from it.

Used as it is, it is wrong in both directions. Drawing pairs inside drawn blocks counts the noise
between pairs twice, which makes intervals up to 1.4 times too wide. With k blocks it sees (k-1)/k
of the variance between them and takes a normal quantile instead of Student's, which makes them too
narrow. So its width is scaled to the variance of clustered samples (`clusters.py`), and the caller
multiplies it with Student's quantile at `df`. benchmarks/coverage.py prints how often intervals
cover, without and with this.
"""

from collections.abc import Callable, Iterator

import numpy as np

from outdraft.stats.clusters import Clusters, Counts, Floats, degrees_of_freedom

# How often each pair was drawn (draws, pairs) → the statistic of each draw (draws,).
Statistic = Callable[[Counts], Floats]

# The error of a percentile depends on how dense the values are around it, which few values show
# badly (form: Hall and Martin, 1988; number: simulated).
ROUGHNESS_OF_PERCENTILES = 0.6
_CELLS_AT_ONCE = 2_000_000  # of a (draws, pairs) array; limits the memory
_TAILS = (0.025, 0.975)  # the width is measured here: a few extreme draws do not change it
_TAILS_IN_STANDARD_ERRORS = 2 * 1.959964


def standard_error(
    clusters: Clusters, statistic: Statistic, *, draws: int, seed: int, roughness: float = 0.0
) -> tuple[float, float]:
    """The standard error of a statistic over two blocks or more, and its degrees of freedom for
    Student's t.

    `roughness` over the root of the pairs is the relative variance of the error itself, besides
    that from having few blocks: 0 for a mean.
    """
    num_pairs, num_blocks = clusters.num_pairs, clusters.num_blocks
    num_prompts = clusters.num_prompts
    prompts_recur = clusters.prompts_recur
    rng = np.random.default_rng(seed)
    hierarchical, blocks, prompts, pairs = [], [], [], []
    for portion in _portions(draws, num_pairs):
        drawn = _draw(rng, num_blocks, portion)
        hierarchical.append(statistic(_pairs_within(rng, drawn, clusters.block_of)))
        blocks.append(statistic(drawn[:, clusters.block_of]))
        if prompts_recur:
            prompts.append(statistic(_draw(rng, num_prompts, portion)[:, clusters.prompt_of]))
            pairs.append(statistic(_draw(rng, num_pairs, portion)))
    of_blocks = _variance(blocks, num_blocks)
    of_prompts = 0.0
    if prompts_recur:
        of_prompts = max(_variance(prompts, num_prompts) - _variance(pairs, num_pairs), 0.0)
    df = degrees_of_freedom((of_blocks, num_blocks - 1), (of_prompts, num_prompts - 1))
    size = _scaled_width(np.concatenate(hierarchical), of_blocks + of_prompts)
    return size, 1 / (1 / df + roughness / num_pairs**0.5 / 2)


def quantile_of_draws(ordered: Floats, counts: Counts, q: float) -> Floats:
    """The percentile of each draw, as `percentile` computes it: ordered (n,), counts (draws, n)."""
    running = counts.cumsum(axis=1)
    place = (running[:, -1] - 1) * q
    below = np.floor(place)
    lower = ordered[(running > below[:, None]).argmax(axis=1)]
    upper = ordered[(running > np.ceil(place)[:, None]).argmax(axis=1)]
    quantiles: Floats = lower + (place - below) * (upper - lower)
    return quantiles


def _portions(draws: int, num_pairs: int) -> Iterator[int]:
    most = max(1, _CELLS_AT_ONCE // num_pairs)
    while draws > 0:
        yield min(most, draws)
        draws -= most


def _draw(rng: np.random.Generator, count: int, draws: int) -> Counts:
    """How often each of `count` things is drawn, `count` times with replacement: (draws, count)."""
    return rng.multinomial(count, np.full(count, 1 / count), size=draws)


def _pairs_within(rng: np.random.Generator, drawn: Counts, block_of: Counts) -> Counts:
    """Pairs drawn with replacement, again for each time that their block was drawn."""
    parts = [
        rng.multinomial(drawn[:, block] * size, np.full(size, 1 / size))
        for block, size in enumerate(np.bincount(block_of))
    ]
    return np.concatenate(parts, axis=1)


def _variance(parts: list[Floats], count: int) -> float:
    """The variance of the draws, corrected for their being centred on the sample."""
    return float(np.concatenate(parts).var()) * count / (count - 1)


def _scaled_width(draws: Floats, variance: float) -> float:
    low, high = np.quantile(draws, _TAILS)
    width = float(high - low) / _TAILS_IN_STANDARD_ERRORS
    deviation = float(draws.std())
    return width * variance**0.5 / deviation if deviation else 0.0
