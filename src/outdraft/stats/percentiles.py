"""Percentiles and their intervals, without assumptions about the distribution."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from scipy import special


def percentile(
    values: Sequence[float], q: float, *, method: Literal["linear", "inverted_cdf"] = "linear"
) -> float:
    """The value below which the fraction `q` of the sample lies.

    `linear` interpolates between two values; `inverted_cdf` gives one that is in the sample.
    """
    if not values:
        raise ValueError("no values")
    return float(np.quantile(np.asarray(values, dtype=float), q, method=method))


def percentile_interval(
    values: Sequence[float], q: float, level: float = 0.95
) -> tuple[float, float] | None:
    """Two values of the sample with the true percentile between them, `level` of the time.

    None if the sample is too small: the number of values below the true percentile is binomial, so
    the 99th percentile at 95 % needs 368 values, the median 6. Values must be independent; those
    of one block are not quite, so this is the least that is needed.
    """
    ranks = interval_ranks(len(values), q, level)
    if ranks is None:
        return None
    ordered = sorted(values)
    return ordered[ranks[0] - 1], ordered[ranks[1] - 1]


def interval_ranks(size: int, q: float, level: float = 0.95) -> tuple[int, int] | None:
    """The ranks (from 1) in the sorted sample that bound the interval; equal tails."""
    if not 0 < q < 1:
        raise ValueError(f"q is {q}, must lie between 0 and 1")
    if not 0 < level < 1:
        raise ValueError(f"level is {level}, must lie between 0 and 1")
    tail = (1 - level) / 2
    at_most = special.bdtr(np.arange(size + 1), size, q)  # P(no more than i values lie below)
    low = int(np.count_nonzero(at_most <= tail))  # P(fewer than `low` lie below) is in the tail
    high = int(np.count_nonzero(at_most < 1 - tail)) + 1
    return (low, high) if low >= 1 and high <= size else None
