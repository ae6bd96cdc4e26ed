"""When requests are due: pure functions to offsets in nanoseconds, from a seed.

A closed loop has no offsets: a slot sends its next request when the last one is answered.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import accumulate

from outdraft.errors import OptionError

_NS = 1e9


def constant(rate: float, count: int) -> list[int]:
    """`rate` requests a second, evenly apart."""
    _check_rate(rate)
    return [round(index / rate * _NS) for index in range(count)]


def poisson(rate: float, count: int, seed: int) -> list[int]:
    return gamma(rate, count, seed, burstiness=1.0)


def gamma(rate: float, count: int, seed: int, *, burstiness: float) -> list[int]:
    """Gaps with the gamma distribution of shape `burstiness`: 1 is Poisson, less is burstier.

    This is vLLM's meaning of the word; the mean rate does not depend on it.
    """
    _check_rate(rate)
    if not burstiness > 0:
        raise OptionError(f"burstiness must be greater than 0, got {burstiness:g}")
    draw = random.Random(seed)
    gaps = [draw.gammavariate(burstiness, 1 / (rate * burstiness)) for _ in range(count)]
    return [round(at * _NS) for at in accumulate(gaps)]


def ramp(first_rate: float, last_rate: float, count: int) -> list[int]:
    """The rate goes from one to the other in a straight line over the requests."""
    _check_rate(first_rate)
    _check_rate(last_rate)
    steps = max(count - 1, 1)
    rates = [first_rate + (last_rate - first_rate) * index / steps for index in range(1, count)]
    ends = accumulate((1 / rate for rate in rates), initial=0.0)
    return [round(at * _NS) for at in ends][:count]


def replay(seconds: Sequence[float], speed: float = 1.0) -> list[int]:
    """The timestamps of a trace, from its first on; `speed` 2 plays it twice as fast."""
    _check_rate(speed)
    if not seconds:
        return []
    start = min(seconds)
    return sorted(round((at - start) / speed * _NS) for at in seconds)


def _check_rate(rate: float) -> None:
    if not 0 < rate < float("inf"):
        raise OptionError(f"a rate must be greater than 0, got {rate:g}")
