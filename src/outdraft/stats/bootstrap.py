"""The hierarchical bootstrap, block then pair, and the standard error read from it.

Taken as it is, it is wrong in both directions. Drawing pairs inside drawn blocks counts the noise
between pairs twice, which makes it up to 1.4 times too wide; and with few blocks it sees (k-1)/k
of the variance between them and takes a normal quantile where Student's is due, which makes it too
narrow. So its width is scaled to the variance that holds for clustered samples, and the caller
multiplies it with Student's quantile at `df`. benchmarks/coverage.py prints how often intervals
cover, without and with that.

The variance has one term for each way in which pairs hang together (Cameron, Gelbach and Miller,
"Robust inference with multiway clustering", 2011):

    whole blocks drawn  +  whole prompts drawn  -  single pairs drawn

The last two cancel where every prompt occurs once. Where prompts come again in other blocks they
do not: their being a sample of the traffic is then a cause of error that more blocks do not heal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
# How often each pair was drawn (draws, pairs) → the statistic of each draw (draws,).
Statistic = Callable[[Counts], Floats]

# The error of a percentile hangs on how densely values lie around it, which is known the worse
# the fewer there are (form: Hall and Martin, 1988; number: simulated).
ROUGHNESS_OF_PERCENTILES = 0.6
_CELLS_AT_ONCE = 2_000_000  # of a (draws, pairs) table; bounds the memory
_TAILS = (0.025, 0.975)  # the width is read off here: a few wild draws do not move it
_TAILS_IN_STANDARD_ERRORS = 2 * 1.959964


@dataclass(frozen=True, slots=True)
class Sample:
    """Which pairs hang together: blocks and prompts numbered from 0, (pairs,) each."""

    block_of: Counts  # ascending
    prompt_of: Counts

    @property
    def num_pairs(self) -> int:
        return len(self.block_of)

    @property
    def num_blocks(self) -> int:
        return int(self.block_of[-1]) + 1

    @property
    def num_prompts(self) -> int:
        return int(self.prompt_of.max()) + 1


@dataclass(frozen=True, slots=True)
class StandardError:
    size: float
    df: float  # what it rests on: degrees of freedom for Student's t


def standard_error(
    sample: Sample, statistic: Statistic, *, draws: int, seed: int, roughness: float = 0.0
) -> StandardError:
    """How far the statistic would stray in another measurement; for two blocks or more.

    `roughness` over the root of the pairs is the relative variance that the error has of its own,
    besides that from having few blocks: 0 for a mean.
    """
    num_pairs, num_blocks, num_prompts = sample.num_pairs, sample.num_blocks, sample.num_prompts
    prompts_recur = 1 < num_prompts < num_pairs
    rng = np.random.default_rng(seed)
    hierarchical, blocks, prompts, pairs = [], [], [], []
    for size in _portions(draws, num_pairs):
        drawn = _draw(rng, num_blocks, size)
        hierarchical.append(statistic(_pairs_within(rng, drawn, sample.block_of)))
        blocks.append(statistic(drawn[:, sample.block_of]))
        if prompts_recur:
            prompts.append(statistic(_draw(rng, num_prompts, size)[:, sample.prompt_of]))
            pairs.append(statistic(_draw(rng, num_pairs, size)))
    of_blocks = _variance(blocks, num_blocks)
    of_prompts = 0.0
    if prompts_recur:
        of_prompts = max(_variance(prompts, num_prompts) - _variance(pairs, num_pairs), 0.0)
    df = _degrees_of_freedom((of_blocks, num_blocks - 1), (of_prompts, num_prompts - 1))
    return StandardError(
        size=_scaled_width(np.concatenate(hierarchical), of_blocks + of_prompts),
        df=1 / (1 / df + roughness / num_pairs**0.5 / 2),
    )


def quantile_of_draws(ordered: Floats, counts: Counts, q: float) -> Floats:
    """The percentile of each draw, as `percentile` has it: ordered (n,), counts (draws, n)."""
    running = counts.cumsum(axis=1)
    place = (running[:, -1] - 1) * q
    below = np.floor(place)
    lower = ordered[(running > below[:, None]).argmax(axis=1)]
    upper = ordered[(running > np.ceil(place)[:, None]).argmax(axis=1)]
    found: Floats = lower + (place - below) * (upper - lower)
    return found


def _portions(draws: int, num_pairs: int) -> Iterator[int]:
    most = max(1, _CELLS_AT_ONCE // num_pairs)
    while draws > 0:
        yield min(most, draws)
        draws -= most


def _draw(rng: np.random.Generator, count: int, draws: int) -> Counts:
    """`count` things drawn with replacement, as often as there are: (draws, count)."""
    return rng.multinomial(count, np.full(count, 1 / count), size=draws)


def _pairs_within(rng: np.random.Generator, drawn: Counts, block_of: Counts) -> Counts:
    """Pairs drawn with replacement, anew for each time that their block was drawn."""
    parts = [
        rng.multinomial(drawn[:, block] * size, np.full(size, 1 / size))
        for block, size in enumerate(np.bincount(block_of))
    ]
    return np.concatenate(parts, axis=1)


def _variance(parts: list[Floats], count: int) -> float:
    """The variance of the draws, and the part of it they miss: they centre on the sample."""
    return float(np.concatenate(parts).var()) * count / (count - 1)


def _scaled_width(draws: Floats, variance: float) -> float:
    low, high = np.quantile(draws, _TAILS)
    width = float(high - low) / _TAILS_IN_STANDARD_ERRORS
    seen = float(draws.std())
    return width * variance**0.5 / seen if seen else 0.0


def _degrees_of_freedom(*terms: tuple[float, int]) -> float:
    """Satterthwaite's, for a sum of (variance, its own degrees of freedom)."""
    total = sum(variance for variance, _ in terms)
    weight = sum(variance**2 / df for variance, df in terms if variance > 0)
    return total**2 / weight if weight else float(terms[0][1])
