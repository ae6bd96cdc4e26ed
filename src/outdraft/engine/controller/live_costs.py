"""Measured costs, corrected by what rounds really take while the engine runs."""

from __future__ import annotations

from bisect import bisect_left
from math import exp, log

import numpy as np
from numpy.typing import NDArray

from outdraft.step_costs import ProposerCosts, RoundCosts, StepCosts

Floats = NDArray[np.float64]

_FIRST_TOKENS = 1024  # of a step, for which costs are worked out ahead; more when they are needed
_LEVEL_SHARE, _KNOT_SHARE = 0.02, 0.05  # of an error that is learned from one round, in the end
_LARGEST_ERROR = 0.3  # as a logarithm; what is slower was held up by something else
_EVERY = 16  # rounds after which corrections are spread over all sizes


class LiveCosts:
    """A slowly moving factor for all steps, one for each size that was measured, one for each
    draft. Rounds of the first moments move them faster.

    base, factors: seconds of steps of 1, 2, 3 … tokens as measured, and what they are now times.
    """

    def __init__(self, costs: RoundCosts) -> None:
        self.costs = costs
        self._knots = np.log(sorted(costs.by_tokens))
        self._sizes: list[float] = self._knots.tolist()
        self._level, self._rounds = 0.0, 0
        self._corrections = np.zeros(len(self._knots))
        self._weights = np.zeros(len(self._knots))
        self._grow(_FIRST_TOKENS)
        self._drafting = dict.fromkeys(costs.proposers, (0.0, 0))  # correction, rounds

    def grow(self, num_tokens: int) -> None:
        """Works costs out for steps of so many tokens."""
        if num_tokens > len(self.base):
            self._grow(2 * num_tokens)

    def drafting(self, proposer: str) -> ProposerCosts:
        correction, _ = self._drafting[proposer]
        return self.costs.proposers[proposer].times(exp(correction))

    def observe(self, tokens: int, expected: float, seconds: float) -> None:
        """A step of so many tokens that was expected to take so long."""
        error = _bounded(log(seconds / expected), self._rounds)
        learned = error * max(_LEVEL_SHARE, 0.5 / (1 + self._rounds))
        self._level += learned
        self._rounds += 1
        for knot, near in self._near(log(tokens)):
            if near > 0:
                share = near * max(_KNOT_SHARE, 0.5 / (1 + self._weights[knot]))
                self._corrections[knot] += share * (error - learned)
                self._weights[knot] += near
        if self._rounds < _EVERY or self._rounds % _EVERY == 0:
            self._spread()

    def _grow(self, num_tokens: int) -> None:
        tokens, measured = np.arange(1, num_tokens + 1), StepCosts(self.costs.by_tokens)
        sizes = [*measured.measured, max(num_tokens, max(measured.measured) + 1)]
        self.base = np.interp(tokens, sizes, [measured.seconds(each) for each in sizes])
        self.base = np.maximum(self.base, min(measured.measured.values()))
        self._logs = np.log(tokens)
        self._spread()

    def _spread(self) -> None:
        spread = np.interp(self._logs, self._knots, self._corrections)
        self.factors = np.exp(self._level + spread)

    def _near(self, x: float) -> tuple[tuple[int, float], ...]:
        """The sizes around it, with how near each is, from 0 to 1."""
        above = bisect_left(self._sizes, x)
        if above in (0, len(self._sizes)):
            return ((min(above, len(self._sizes) - 1), 1.0),)
        low, high = self._sizes[above - 1], self._sizes[above]
        share = (x - low) / (high - low)
        return (above - 1, 1 - share), (above, share)

    def observe_drafting(self, proposer: str, expected: float, seconds: float) -> None:
        correction, rounds = self._drafting[proposer]
        error = _bounded(log(seconds / expected), rounds)
        correction += error * max(_KNOT_SHARE, 0.5 / (1 + rounds))
        self._drafting[proposer] = correction, rounds + 1


def _bounded(error: float, rounds: int) -> float:
    """The first rounds may be far from what was measured."""
    limit = _LARGEST_ERROR if rounds > 4 else 4 * _LARGEST_ERROR
    return min(max(error, -limit), limit)
