"""Pairs that depend on each other: those of one block, and those of one prompt.

The variance of a mean over such pairs has one term for each way in which they depend (Cameron,
Gelbach and Miller, "Robust inference with multiway clustering", 2011):

    between blocks  +  between prompts  -  between single pairs

The last two cancel if every prompt occurs once. If prompts recur in other blocks they do not: that
the prompts are a sample of the traffic is then an error that more blocks do not reduce.

Categories have fixed shares of the requests: that they differ is no chance, and only what differs
within them counts (a stratified sample).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
_FEWEST = 2  # different prompts of each category; with fewer all are taken as one


@dataclass(frozen=True, slots=True)
class Clusters:
    """The block, the prompt and the category of each pair, all numbered from 0: (pairs,)."""

    block_of: Counts  # ascending
    prompt_of: Counts
    category_of: Counts | None = None  # None: all are of one

    @property
    def num_pairs(self) -> int:
        return len(self.block_of)

    @property
    def num_blocks(self) -> int:
        return int(self.block_of[-1]) + 1

    @property
    def num_prompts(self) -> int:
        return int(self.prompt_of.max()) + 1

    @property
    def prompts_recur(self) -> bool:
        return 1 < self.num_prompts < self.num_pairs


def error_of_mean(values: Floats, clusters: Clusters) -> tuple[float, float]:
    """The standard error of the mean of values over two blocks or more, and its degrees of
    freedom for Student's t. `values` has shape (pairs,)."""
    num_pairs, num_prompts, category_of = len(values), clusters.num_prompts, clusters.category_of
    one_category = np.zeros(num_pairs, dtype=np.int64)
    if category_of is None:
        category_of = one_category
    prompts = np.unique(np.stack([category_of, clusters.prompt_of]), axis=1)
    if np.bincount(prompts[0]).min() < _FEWEST:
        category_of = one_category
    sizes = np.bincount(category_of)
    from_mean = values - (np.bincount(category_of, weights=values) / sizes)[category_of]
    num_free = num_pairs - len(sizes)
    of_blocks = _variance(from_mean, clusters.block_of, num_free / num_pairs)
    of_prompts, free_prompts = 0.0, num_prompts - len(sizes)
    if clusters.prompts_recur:
        repeated = _variance(from_mean, clusters.prompt_of, free_prompts / num_prompts)
        single = _variance(from_mean, np.arange(num_pairs), num_free / num_pairs)
        of_prompts = max(repeated - single, 0.0)
    df = degrees_of_freedom((of_blocks, clusters.num_blocks - 1), (of_prompts, free_prompts))
    return (of_blocks + of_prompts) ** 0.5, min(df, num_free)


def degrees_of_freedom(*terms: tuple[float, int]) -> float:
    """Satterthwaite's, for a sum of (variance, its own degrees of freedom)."""
    total = sum(variance for variance, _ in terms)
    weight = sum(variance**2 / df for variance, df in terms if variance > 0)
    return total**2 / weight if weight else float(terms[0][1])


def _variance(from_mean: Floats, cluster_of: Counts, seen: float) -> float:
    """Of the mean, if whole clusters are drawn. Centred on their own mean, or on those of their
    categories, the values vary less than they do: `seen` is the share that is left."""
    sums = np.bincount(cluster_of, weights=from_mean)
    share = min((len(sums) - 1) / len(sums), seen)
    return float(np.sum(sums**2)) / len(from_mean) ** 2 / share
