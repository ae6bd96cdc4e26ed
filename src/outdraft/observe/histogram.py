"""A Prometheus histogram: counts below bounds, from which means and percentiles are read. Pure."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

_BUCKET = re.compile(r'le="([^"]+)"')


@dataclass(frozen=True, slots=True)
class Histogram:
    """Observations by the smallest bound that is not below them; the last bound is infinity."""

    bounds: tuple[float, ...]
    counts: tuple[float, ...]  # of each bucket by itself
    sum: float

    @classmethod
    def read(cls, page: Mapping[str, float], name: str) -> Histogram | None:
        """From a page with the label `le`; None where it has no such histogram. Labels beside
        `le` are summed over."""
        below: dict[float, float] = {}
        start = f"{name}_bucket{{"
        for key, value in page.items():
            if key.startswith(start) and (matched := _BUCKET.search(key)):
                bound = float(matched[1])
                below[bound] = below.get(bound, 0.0) + value
        if not below:
            return None
        bounds = tuple(sorted(below))
        levels = (0.0, *(below[bound] for bound in bounds))
        counts = tuple(max(high - low, 0.0) for low, high in pairwise(levels))
        return cls(bounds, counts, page.get(f"{name}_sum", 0.0))

    @property
    def count(self) -> float:
        return math.fsum(self.counts)

    @property
    def mean(self) -> float | None:
        return self.sum / self.count if self.count else None

    def __add__(self, other: Histogram) -> Histogram:
        """ValueError where the bounds differ: replicas of two versions."""
        if self.bounds != other.bounds:
            raise ValueError("histograms with other bounds")
        counts = tuple(a + b for a, b in zip(self.counts, other.counts, strict=True))
        return Histogram(self.bounds, counts, self.sum + other.sum)

    def since(self, before: Histogram | None) -> Histogram:
        """What was observed after `before`; all of it where the server was restarted."""
        if before is None or before.bounds != self.bounds or before.count > self.count:
            return self
        counts = tuple(max(a - b, 0.0) for a, b in zip(self.counts, before.counts, strict=True))
        return Histogram(self.bounds, counts, max(self.sum - before.sum, 0.0))

    def bucket_of(self, q: float) -> tuple[float, float] | None:
        """The bounds between which the q-th quantile lies; None without observations."""
        if not self.count:
            return None
        wanted, seen = q * self.count, 0.0
        for at, count in enumerate(self.counts):
            seen += count
            if seen >= wanted and count:
                return (self.bounds[at - 1] if at else 0.0), self.bounds[at]
        return self.bounds[-2] if len(self.bounds) > 1 else 0.0, self.bounds[-1]

    def quantile(self, q: float) -> float | None:
        """Linear within its bucket, as Prometheus does it; the last bound where it is beyond."""
        within = self.bucket_of(q)
        if within is None:
            return None
        low, high = within
        if math.isinf(high):
            return low
        at = bisect_left(self.bounds, high)
        before = math.fsum(self.counts[:at])
        return low + (high - low) * min(max(q * self.count - before, 0.0) / self.counts[at], 1.0)
