"""Times of best against off: how large a share of the requests was done within each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outdraft.report.figures.arms import off_of
from outdraft.report.tune_table import best_of
from outdraft.stats import percentile, percentile_interval
from outdraft.tune.results import ArmResult, LoadResult

QUANTILES = (0.50, 0.95, 0.99)
_MOST_POINTS = 160  # of a curve: more are not seen


@dataclass(frozen=True, slots=True)
class Quantile:
    q: float
    value: float  # ms
    interval: tuple[float, float] | None  # None: too few requests for one


@dataclass(frozen=True, slots=True)
class Distribution:
    arm: str
    count: int
    points: tuple[tuple[float, float], ...]  # (ms, share of the requests within it)
    quantiles: tuple[Quantile, ...]


@dataclass(frozen=True, slots=True)
class Latency:
    """One kind of time, of both arms."""

    name: str  # "TPOT"
    meaning: str
    off: Distribution
    best: Distribution
    end: float  # ms where the axis ends
    num_beyond: int  # requests that took longer than that


_KINDS = (
    ("TPOT", "time per output token after the first", "tpot_ms"),
    ("e2e", "from when a request was due to its last token", "e2e_ms"),
    ("TTFT", "from when a request was due to its first token", "ttft_ms"),
)


def latencies(load: LoadResult) -> tuple[Latency, ...]:
    """Of every kind that both arms have times of."""
    off, best = off_of(load), best_of(load)
    if off is None or best is None:
        return ()
    found = []
    for name, meaning, key in _KINDS:
        one, other = _distribution(off, key), _distribution(best, key)
        if one is not None and other is not None:
            end = 1.06 * max(each.quantiles[-1].value for each in (one, other))
            beyond = sum(ms > end for arm in (off, best) for ms in getattr(arm, key))
            found.append(Latency(name, meaning, one, other, end, beyond))
    return tuple(found)


def _distribution(arm: ArmResult, key: str) -> Distribution | None:
    values: Sequence[float] = sorted(getattr(arm, key))
    if not values:
        return None
    count = len(values)
    kept = range(0, count, -(-count // _MOST_POINTS))
    points = [(values[at], (at + 1) / count) for at in kept]
    if points[-1][1] < 1:
        points.append((values[-1], 1.0))
    quantiles = tuple(
        Quantile(q, percentile(values, q), percentile_interval(values, q)) for q in QUANTILES
    )
    return Distribution(arm.name, count, tuple(points), quantiles)
