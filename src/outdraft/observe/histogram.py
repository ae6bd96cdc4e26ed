"""A Prometheus histogram: counts below bounds, from which means and percentiles are read. Pure."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

_BUCKET = re.compile(r'le="([^"]+)"')


@dataclass(frozen=True, slots=True)
class Histogram:
    """Observations by the smallest bound that is not below them; the last bound is infinity, also
    of a page that lacks it."""

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
                bound = _number(matched[1])
                below[bound] = below.get(bound, 0.0) + value
        return cls._from_below(below, page.get(f"{name}_sum", 0.0)) if below else None

    @classmethod
    def read_by(cls, page: Mapping[str, float], name: str, label: str) -> dict[str, Histogram]:
        """One for each value of a label."""
        below: dict[str, dict[float, float]] = {}
        start = f"{name}_bucket{{"
        values = re.compile(rf'\b{label}="([^"]*)"')
        for key, value in page.items():
            if key.startswith(start) and (matched := _BUCKET.search(key)):
                labelled = values.search(key)
                part = below.setdefault(labelled[1] if labelled else "", {})
                bound = _number(matched[1])
                part[bound] = part.get(bound, 0.0) + value
        return {
            part: cls._from_below(levels, page.get(f'{name}_sum{{{label}="{part}"}}', 0.0))
            for part, levels in below.items()
        }

    @classmethod
    def _from_below(cls, below: Mapping[float, float], sum_of_all: float) -> Histogram:
        bounds = tuple(sorted(below))
        levels = (0.0, *(below[bound] for bound in bounds))
        if not math.isinf(bounds[-1]):
            bounds, levels = (*bounds, math.inf), (*levels, levels[-1])
        counts = tuple(max(high - low, 0.0) for low, high in pairwise(levels))
        return cls(_shared(bounds), counts, sum_of_all)

    @property
    def count(self) -> float:
        return math.fsum(self.counts)

    @property
    def mean(self) -> float | None:
        return self.sum / self.count if self.count else None

    def __add__(self, other: Histogram) -> Histogram:
        """Where the bounds differ (replicas of two versions), only those that both have are kept:
        coarser, and still right."""
        if self.bounds != other.bounds:
            shared = frozenset(self.bounds) & frozenset(other.bounds)
            return self._coarser(shared) + other._coarser(shared)
        counts = tuple(a + b for a, b in zip(self.counts, other.counts, strict=True))
        return Histogram(self.bounds, counts, self.sum + other.sum)

    @classmethod
    def total(cls, parts: Sequence[Histogram]) -> Histogram:
        """The sum of one or more."""
        first = parts[0]
        if any(each.bounds != first.bounds for each in parts):
            return sum(parts[1:], first)
        counts = tuple(map(sum, zip(*[each.counts for each in parts], strict=True)))
        return cls(first.bounds, counts, sum([each.sum for each in parts]))

    def _coarser(self, bounds: frozenset[float]) -> Histogram:
        counts: list[float] = []
        waiting = 0.0
        for bound, count in zip(self.bounds, self.counts, strict=True):
            waiting += count
            if bound in bounds:
                counts.append(waiting)
                waiting = 0.0
        kept = tuple(bound for bound in self.bounds if bound in bounds)
        return Histogram(kept, tuple(counts), self.sum)

    def since(self, before: Histogram | None) -> Histogram:
        """What was observed after `before`; all of it where the server was restarted."""
        if before is None or before.bounds != self.bounds or before.count > self.count:
            return self
        # Most buckets did not grow: they share one zero, which counts where many growths are kept.
        both = zip(self.counts, before.counts, strict=True)
        counts = tuple([a - b if a > b else 0.0 for a, b in both])
        return Histogram(self.bounds, counts, max(self.sum - before.sum, 0.0))

    def without_zeros(self, number: float) -> Histogram:
        """So many observations of 0, or as many as there can be, taken away."""
        first, *others = self.counts
        return Histogram(self.bounds, (max(first - number, 0.0), *others), self.sum)

    def bucket_of(self, q: float) -> tuple[float, float] | None:
        """The bounds between which the q-th quantile lies; None without observations."""
        if not self.count:
            return None
        wanted, seen, found = q * self.count, 0.0, 0
        for at, count in enumerate(self.counts):
            if count:
                seen, found = seen + count, at
                if seen >= wanted:
                    break
        high = self.bounds[found]
        return (self.bounds[found - 1] if found else min(high, 0.0)), high

    def quantile(self, q: float) -> float | None:
        """Linear within its bucket, as Prometheus does it; the last bound where it is beyond. None
        without observations or bounds."""
        within = self.bucket_of(q)
        if within is None:
            return None
        low, high = within
        if math.isinf(high):
            return low if len(self.bounds) > 1 else None
        at = bisect_left(self.bounds, high)
        before = math.fsum(self.counts[:at])
        return low + (high - low) * min(max(q * self.count - before, 0.0) / self.counts[at], 1.0)


@lru_cache(maxsize=256)
def _shared(bounds: tuple[float, ...]) -> tuple[float, ...]:
    """One object for equal bounds: histories have thousands of histograms."""
    return bounds


def _number(bound: str) -> float:
    """A bound that is no number holds nothing that another would not."""
    try:
        number = float(bound)
    except ValueError:
        return math.inf
    return number if math.isfinite(number) else math.inf
