"""Intervals of a ratio by leaving out one unit after the other. Pure.

A unit is a stretch of time: requests of the same stretch share whatever the machine did then, and
are no evidence of their own. Both sides of a comparison lose the same stretch, so what slowed both
of them alike does not count as chance.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import special

from outdraft.stats.clusters import degrees_of_freedom
from outdraft.stats.ratios import LEVEL, MAX_LOG

Floats = NDArray[np.float64]

FEWEST_UNITS = 6  # with fewer there is no interval
MOST_UNITS = 20  # more would be stretches so short that neighbours are alike


def variance_left_out(logs: Floats) -> float:
    """Of a logarithm, from its values with one of n units left out each."""
    count = len(logs)
    return float((count - 1) / count * np.sum((logs - logs.mean()) ** 2))


def corrected(log: float, logs: Floats) -> float:
    """Without the error of a ratio of means of few, noisy units (Quenouille, 1956)."""
    return float(log + (len(logs) - 1) * (log - logs.mean()))


def bounds(log: float, *terms: tuple[float, float]) -> tuple[float, float]:
    """The interval around exp(log). A term is (variance, its degrees of freedom)."""
    error = math.sqrt(sum(variance for variance, _ in terms))
    df = degrees_of_freedom(*((variance, max(round(df), 1)) for variance, df in terms))
    reach = float(special.stdtrit(df, (1 + LEVEL) / 2)) * error
    return math.exp(max(log - reach, -MAX_LOG)), math.exp(min(log + reach, MAX_LOG))


def equal_parts(weights: Sequence[float], count: int) -> list[int]:
    """The number of the part that each of a row of things belongs to, so that `count` parts have
    about the same weight."""
    total = math.fsum(weights)
    seen, parts = 0.0, []
    for weight in weights:
        middle = (seen + weight / 2) / total if total else 0.0
        parts.append(min(int(middle * count), count - 1))
        seen += weight
    return parts
