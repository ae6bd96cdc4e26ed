"""Shares and paces with their errors, and what is usual. Pure.

Tokens of one request resemble each other, and so do requests of one minute. An error therefore has
two parts: what minutes differ by, and what requests are known to differ by.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from outdraft.watch.alarms.past import Floats, Rows

# Requests differ (code against prose, temperature 0 against 1): the share of the variance of a
# draft token's acceptance that lies between them. They are of unequal length, which counts as if
# they were half as many. A rate near 0 would seem to be known exactly: it is taken to be higher.
_BETWEEN_REQUESTS = 0.2
_UNEQUAL = 2.0
_LEAST_RATE = 0.01
_MAD_TO_SIGMA = 1.4826
_SAME_LOAD = (0.6, 1.6)
_K_DIFFERS = 0.25  # acceptance rates are compared at draft lengths that differ by less


@dataclass(frozen=True, slots=True)
class Accepted:
    """An acceptance rate of a stretch of time."""

    rate: float
    error: float  # standard error
    length: float
    mean_k: float
    requests: float

    @property
    def length_error(self) -> float:
        return self.error * self.mean_k


def accepted_of(rows: Rows) -> Accepted | None:
    """None where nothing was drafted."""
    drafts, drafted, accepted = (rows[name] for name in ("drafts", "draft_tokens", "accepted"))
    total, rounds = float(drafted.sum()), float(drafts.sum())
    if total <= 0 or rounds <= 0:
        return None
    rate = float(accepted.sum()) / total
    requests = max(rows.sum("requests"), 1.0)
    likely = min(max(rate, _LEAST_RATE), 1 - _LEAST_RATE)
    between = _BETWEEN_REQUESTS * likely * (1 - likely) * _UNEQUAL / requests
    error = (_cluster_variance(accepted, drafted) + between) ** 0.5
    return Accepted(rate, error, 1 + rate * total / rounds, total / rounds, requests)


@dataclass(frozen=True, slots=True)
class TokenPace:
    """Seconds per token of a stream."""

    seconds: float
    error: float
    running: float
    tokens_per_s: float
    requests: float

    def is_under_load_of(self, other: TokenPace) -> bool:
        """As many texts at a time, or as many tokens a second: a server that became slower has
        more of the first, or fewer of the second."""
        running = (self.running + 0.5) / (other.running + 0.5)
        tokens = self.tokens_per_s / other.tokens_per_s
        return any(_SAME_LOAD[0] <= ratio <= _SAME_LOAD[1] for ratio in (running, tokens))


def token_pace(rows: Rows) -> TokenPace | None:
    seconds, tokens = rows["decode_seconds"], rows["decode_tokens"]
    total = float(tokens.sum())
    if total <= 0:
        return None
    pace = float(seconds.sum()) / total
    error = _cluster_variance(seconds, tokens) ** 0.5
    per_s = rows.sum("tokens") / max(rows.sum("seconds"), 1.0)
    return TokenPace(pace, error, rows.mean("running"), max(per_s, 1e-9), rows.sum("requests"))


@dataclass(frozen=True, slots=True)
class Usual:
    """What a figure was in stretches of the past."""

    median: float
    sigma: float  # robust: of the median distance
    low: float  # the 5th percentile
    high: float  # the 95th
    num_rows: int


def usual_of(values: Floats) -> Usual | None:
    if not len(values):
        return None
    ordered = np.sort(values)
    median = _at(ordered, 0.5)
    sigma = _MAD_TO_SIGMA * _at(np.sort(np.abs(ordered - median)), 0.5)
    return Usual(median, sigma, _at(ordered, 0.05), _at(ordered, 0.95), len(values))


def median_of(values: Floats) -> float:
    return _at(np.sort(values), 0.5)


def _at(ordered: Floats, q: float) -> float:
    """A quantile, linear between two values: `np.quantile` takes ten times as long to say it."""
    place = q * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    low, high = float(ordered[below]), float(ordered[above])
    return low + (place - below) * (high - low)


def usual_rate(rows: Rows, k: float, *, min_requests: float) -> Usual | None:
    """Acceptance rates of rows with traffic and with drafts about as long as k."""
    drafts = np.maximum(rows["drafts"], 1.0)
    drafted = rows["draft_tokens"]
    is_near = np.abs(drafted / drafts - k) <= _K_DIFFERS * k
    has_traffic = (rows["requests"] >= min_requests) & (drafted > 0)
    wanted = is_near & has_traffic
    return usual_of(rows["accepted"][wanted] / drafted[wanted])


def _cluster_variance(values: Floats, weights: Floats) -> float:
    """Of sum(values) / sum(weights), if whole rows are drawn; 1 where a single row says nothing."""
    has_weight = weights > 0
    values, weights = values[has_weight], weights[has_weight]
    if len(weights) < 2:
        return 1.0
    total = weights.sum()
    from_mean = values - values.sum() / total * weights
    return float(from_mean @ from_mean) / float(total) ** 2 * len(weights) / (len(weights) - 1)
