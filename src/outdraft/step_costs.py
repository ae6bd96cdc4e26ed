"""What a decoding step costs, in seconds, by the number of tokens it computes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from statistics import median


def interpolate(points: Iterable[tuple[float, float]], x: float) -> float:
    """Linear interpolation between points (x, y); the first and last segment go on outside."""
    ordered = sorted(points)
    if len(ordered) == 1:
        return ordered[0][1]
    at = min(max(bisect_left(ordered, (x,)), 1), len(ordered) - 1)
    (low, below), (high, above) = ordered[at - 1], ordered[at]
    return below + (above - below) / (high - low) * (x - low)


class StepCosts:
    """Seconds of a step: measured at some sizes, interpolated between them."""

    def __init__(self, measured: Mapping[int, float]) -> None:
        self.measured = dict(sorted(measured.items()))  # tokens of a step → seconds
        self._least = self.measured[min(self.measured)]

    @classmethod
    def median_of(cls, tables: Iterable[Mapping[int, float]]) -> StepCosts | None:
        """Size by size, the median of what several engines measured; None without any table."""
        seconds: dict[int, list[float]] = {}
        for table in tables:
            for size, each in table.items():
                seconds.setdefault(size, []).append(each)
        return cls({size: median(each) for size, each in seconds.items()}) if seconds else None

    def seconds(self, num_tokens: float) -> float:
        """Of a step that computes so many tokens; never below the smallest size measured."""
        return max(interpolate(self.measured.items(), num_tokens), self._least)


class DraftingCosts:
    """What a step costs in plain steps, by the draft tokens that it verifies for each sequence.

    0 draft tokens cost 1. Measured costs are split into verifying, where `verification` says what
    that costs, and drafting, which is interpolated. Without it, verifying counts as a plain step.
    """

    def __init__(
        self, measured: Mapping[float, float], verification: Callable[[float], float] | None = None
    ) -> None:
        self._verification = verification or (lambda num_drafted: 1.0)
        drafting = {each: cost - self._verification(each) for each, cost in measured.items()}
        self._drafting = {0.0: 0.0, **drafting}

    def at(self, num_drafted: float) -> float:
        drafting = interpolate(self._drafting.items(), num_drafted)
        # No step is faster than a plain one, however noisy the measurements are.
        return max(drafting + self._verification(num_drafted), 1.0)


def verification_costs(
    costs: StepCosts, num_sequences: float, plain_seconds: float
) -> Callable[[float], float]:
    """Draft tokens of each sequence → what verifying them costs, in plain steps.

    `costs` were measured on short texts. What a longer context adds to a plain step (of
    `plain_seconds`), it adds to a verification step too.
    """
    base = costs.seconds(num_sequences)

    def cost(num_drafted: float) -> float:
        return 1 + (costs.seconds(num_sequences * (1 + num_drafted)) - base) / plain_seconds

    return cost
