"""From values to pixels, and where the ticks go."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class Scale:
    """`low` is drawn at `start`, `high` at `end`; what lies outside is drawn at the edge."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        span = self.high - self.low
        place = (value - self.low) / span if span else 0.5
        return self.start + min(max(place, 0.0), 1.0) * (self.end - self.start)


def ticks(low: float, high: float, at_most: int = 6) -> list[float]:
    """Round values within the range: multiples of 1, 2 or 5 times a power of ten."""
    if not high > low:
        return [low]
    raw = (high - low) / max(at_most - 1, 1)
    power = 10.0 ** math.floor(math.log10(raw))
    for factor in (1, 2, 5, 10, 20):
        step = factor * power
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first + 1 <= at_most:
            break
    return [each * step for each in range(first, last + 1)]


def labelled(values: Sequence[float]) -> list[tuple[float, str]]:
    """With as many decimal places as tell them apart."""
    step = min((b - a for a, b in pairwise(values)), default=1.0) or 1.0
    places = next(
        (n for n in range(7) if all(abs(round(each, n) - each) < step / 1000 for each in values)), 7
    )
    return [(each, f"{each:,.{places}f}") for each in values]
