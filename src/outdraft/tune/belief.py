"""What is believed of all arms: predictions and measured blocks together. Pure.

Blocks are noisy, and say nothing of arms that did not run. Predictions may be wrong, more so for a
whole proposer (its draft costs more than predicted) than for one draft length beside the others. So
logarithms of speedups are taken to be normal around the predictions, correlated within a proposer.
Each block observes them with noise, part of which is common to all arms of the block: its texts and
its moment. The posterior has a closed form.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log, sqrt

import numpy as np
from numpy.typing import NDArray

# Standard deviations of the error of predictions, in logarithms: dev/LOG.md has the measurements.
# The first is common to all arms, because the profile of off is: its texts and its moment.
_ALL, _PROPOSER, _ARM = 0.07, 0.05, 0.04
# Noise of an arm in a block before any was measured, and how many observations that counts for.
_NOISE, _NOISE_WEIGHT = 0.09, 4
_BLOCK = 0.1  # noise that is common to the arms of a block
_ROUNDS = 5  # of removing means, where not every arm was in every block
_LEAST = 1e-3  # speedup: 0 has no logarithm


@dataclass(frozen=True, slots=True)
class Belief:
    """Logarithms of speedups, jointly normal."""

    place: Mapping[str, int]  # name of an arm → its index
    mean: NDArray[np.float64]
    covariance: NDArray[np.float64]

    def of(self, name: str) -> float:
        return float(self.mean[self.place[name]])

    def might_lead_by(self, name: str, leader: str, deviations: float) -> float:
        """How far ahead of `leader` the arm is, as a logarithm, if the difference is better than
        believed by so many standard deviations."""
        a, b = self.place[name], self.place[leader]
        spread = self.covariance[a, a] + self.covariance[b, b] - 2 * self.covariance[a, b]
        ahead = self.mean[a] - self.mean[b]
        return float(ahead + deviations * sqrt(max(float(spread), 0.0)))


def believe(
    predicted: Mapping[str, float],  # speedups by the arms' names
    proposers: Mapping[str, str],  # the same names → their proposers
    gains: Mapping[str, Mapping[int, float]],  # name → block → logarithm of the speedup
) -> Belief:
    """The posterior after these blocks."""
    names = list(predicted)
    place = {name: at for at, name in enumerate(names)}
    mean = np.array([log(max(predicted[name], _LEAST)) for name in names])
    kin = np.array([[proposers[a] == proposers[b] for b in names] for a in names], dtype=np.float64)
    covariance = _ALL**2 + _PROPOSER**2 * kin + _ARM**2 * np.eye(len(names))
    observed = [(place[name], block, gain) for name in names
                for block, gain in sorted(gains.get(name, {}).items())]  # fmt: skip
    if not observed:
        return Belief(place, mean, covariance)
    rows = [row for row, _, _ in observed]
    blocks = np.array([block for _, block, _ in observed])
    measured = np.array([gain for _, _, gain in observed])
    noise = _noise(np.array(rows), blocks, measured) * np.eye(len(observed))
    noise += _BLOCK**2 * (blocks[:, None] == blocks[None])
    weight = covariance[:, rows] @ np.linalg.inv(covariance[np.ix_(rows, rows)] + noise)
    posterior = mean + weight @ (measured - mean[rows])
    return Belief(place, posterior, covariance - weight @ covariance[rows])


def expected_speedups(
    belief: Belief,  # from the same predictions and gains
    predicted: Mapping[str, float],
    proposers: Mapping[str, str],
    gains: Mapping[str, Mapping[int, float]],
) -> dict[str, float]:
    """Predictions corrected by the blocks of other arms. An arm's own are left out, so that its
    prediction can be compared with them."""
    corrected = {}
    for name in predicted:
        others = {other: each for other, each in gains.items() if other != name}
        own = believe(predicted, proposers, others) if gains.get(name) else belief
        corrected[name] = exp(own.of(name))
    return corrected


def _noise(arms: NDArray[np.int64], blocks: NDArray[np.int64], gains: NDArray[np.float64]) -> float:
    """Variance of an arm in a block: what is left when the means of arms and blocks are removed."""
    left = gains.copy()
    for _ in range(_ROUNDS):
        for by in (arms, blocks):
            for one in set(by.tolist()):
                left[by == one] -= left[by == one].mean()
    free = max(len(gains) - len(set(arms.tolist())) - len(set(blocks.tolist())) + 1, 0)
    squares = float(np.sum(left**2)) if free else 0.0
    return (_NOISE_WEIGHT * _NOISE**2 + squares) / (_NOISE_WEIGHT + free)
