"""The slowest requests of a stretch of time, and of every half hour of the past. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from outdraft.watch.alarms.past import MINUTE, Floats, Rows

TAIL_S = 30 * MINUTE
_CLEAR = 3.5  # standard errors
_REQUESTS = 200.0  # a 99th percentile needs them


@dataclass(frozen=True, slots=True)
class Tail:
    p50: float
    p99: float
    sure_p99: float  # P99 is above this, chance aside
    running: float

    @property
    def gap(self) -> float:
        return self.p99 / self.p50

    def words(self, name: str) -> str:
        return (
            f"{name.upper()}: P99 is {self.gap:.1f} times P50 ({in_words(self.p99)} and "
            f"{in_words(self.p50)})"
        )


def tail_of(rows: Rows, name: str) -> Tail | None:
    """None with too few requests."""
    total = rows.times[name].total()
    if total is None or total.count < _REQUESTS:
        return None
    sure = 0.99 - _CLEAR * (0.99 * 0.01 / total.count) ** 0.5  # ranks are binomial
    p50, p99, sure_p99 = (total.quantile(q) for q in (0.5, 0.99, sure))
    if not p50 or not p99 or not sure_p99:
        return None
    return Tail(p50, p99, sure_p99, rows.mean("running"))


def tails_of(rows: Rows, name: str) -> Floats:
    """P50, P99 and load of every half hour with enough requests: (3, half hours)."""
    times = rows.times[name]
    if not len(rows) or not times.bounds:
        return np.zeros((3, 0))
    block_of = np.floor((rows["end"] - rows["end"][-1]) / TAIL_S - 1e-9)
    starts = np.flatnonzero(np.diff(block_of, prepend=-math.inf))
    counts = np.add.reduceat(times.counts, starts, axis=0)
    sizes = np.diff(starts, append=len(rows))
    running = np.add.reduceat(rows["running"], starts) / sizes
    is_enough = counts.sum(axis=1) >= _REQUESTS
    counts, running = counts[is_enough], running[is_enough]
    p50, p99 = (_quantiles(counts, times.bounds, q) for q in (0.5, 0.99))
    return np.stack([p50, p99, running])[:, p50 > 0]


def _quantiles(counts: Floats, bounds: tuple[float, ...], q: float) -> Floats:
    """As `Histogram.quantile`, of every row: linear within its bucket."""
    if not len(counts):
        return np.zeros(0)
    below = np.cumsum(counts, axis=1)
    wanted = q * below[:, -1]
    at = np.argmax((below >= wanted[:, None]) & (counts > 0), axis=1)
    row = np.arange(len(counts))
    highs = np.array(bounds)
    lows = np.concatenate([[0.0], highs[:-1]])
    width = np.where(np.isinf(highs), 0.0, highs - lows)[at]
    within = (wanted - (below - counts)[row, at]) / counts[row, at]
    return np.asarray(lows[at] + width * np.clip(within, 0.0, 1.0))


def in_words(seconds: float) -> str:
    return f"{seconds:.2g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"
