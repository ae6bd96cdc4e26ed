"""How many requests a server says to run while as many were sent as the load names. Pure.

It counts on the plateau of a block alone: before it, requests still fill the slots, and after it
they run out. Each block gives one mean; from them come the mean of an arm and its interval.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy import special

from outdraft.measure.gauges import RUNNING, Sample, counted_time, mean_between
from outdraft.records import Record

_FULL = 0.9  # of a load: where less of it runs, it is said
_LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class RunningRequests:
    """Requests that ran on average, over blocks. An interval needs two."""

    mean: float
    low: float | None
    high: float | None

    def is_short_of(self, wanted: int) -> bool:
        """Whether clearly fewer ran than the load names, by enough to matter. One block alone does
        not tell."""
        return self.mean < _FULL * wanted and self.high is not None and self.high < wanted

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.mean:.1f}"
        return f"{self.mean:.1f} [{self.low:.1f}, {self.high:.1f}]"


def running_in(samples: Sequence[Sample], records: Sequence[Record]) -> float | None:
    """Of one block of one arm; None where nobody looked while it counted."""
    time = counted_time(records)
    return None if time is None else mean_between(samples, RUNNING, *time)


def mean_of_blocks(means: Sequence[float]) -> RunningRequests | None:
    """With Student's interval, each block being one measurement; None without blocks."""
    if not means:
        return None
    mean, count = fmean(means), len(means)
    if count < 2:
        return RunningRequests(mean, None, None)
    reach = float(special.stdtrit(count - 1, (1 + _LEVEL) / 2)) * stdev(means) / math.sqrt(count)
    return RunningRequests(mean, max(mean - reach, 0.0), mean + reach)
