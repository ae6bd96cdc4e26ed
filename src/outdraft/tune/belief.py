"""How fast arms are, from predictions and what was measured since, together. Pure.

Each tells something the other does not. A block is noisy, and says nothing of arms that did not
run; a prediction may be off, more so for a whole proposer (its draft costs more than thought) than
for one of its draft lengths beside the others. So logarithms of speedups are taken to be normal
around the predictions, those of one proposer going along with each other, and blocks to be those
speedups with noise on top, some of it common to all arms of a block: its texts, its moment. What
is believed after some blocks then has a closed form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log, sqrt

import numpy as np
from numpy.typing import NDArray

# How far predictions are off, as standard deviations of logarithms: see dev/LOG.md. All of them
# alike: by what the texts and moments of two blocks had of their own.
_ALL, _PROPOSER, _ARM = 0.07, 0.05, 0.04
_NOISE, _NOISE_WEIGHT = 0.09, 4  # of an arm in a block, before any was seen; counts as so many
_BLOCK = 0.1  # of a block, common to its arms
_ROUNDS = 5  # of taking away means, where not every arm was in every block
_LEAST = 1e-3  # a speedup has a logarithm


@dataclass(frozen=True, slots=True)
class Belief:
    place: Mapping[str, int]  # by the arm's name
    mean: NDArray[np.float64]  # of the speedup's logarithm
    covariance: NDArray[np.float64]

    def of(self, name: str) -> float:
        return float(self.mean[self.place[name]])

    def might_lead_by(self, name: str, leader: str, deviations: float) -> float:
        """How far ahead of `leader` it is, as a logarithm, if it is luckier than believed by so
        many standard deviations."""
        a, b = self.place[name], self.place[leader]
        spread = self.covariance[a, a] + self.covariance[b, b] - 2 * self.covariance[a, b]
        ahead = self.mean[a] - self.mean[b]
        return float(ahead + deviations * sqrt(max(float(spread), 0.0)))


def believe(
    predicted: Mapping[str, float],  # speedups by the arms' names
    proposers: Mapping[str, str],  # the same names → their proposers
    gains: Mapping[str, Mapping[int, float]],  # logarithms of speedups by block
) -> Belief:
    names = list(predicted)
    place = {name: at for at, name in enumerate(names)}
    mean = np.array([log(max(predicted[name], _LEAST)) for name in names])
    kin = np.array([[proposers[a] == proposers[b] for b in names] for a in names], dtype=np.float64)
    covariance = _ALL**2 + _PROPOSER**2 * kin + _ARM**2 * np.eye(len(names))
    seen = [(place[name], block, gain) for name in names
            for block, gain in sorted(gains.get(name, {}).items())]  # fmt: skip
    if not seen:
        return Belief(place, mean, covariance)
    rows = [row for row, _, _ in seen]
    blocks = np.array([block for _, block, _ in seen])
    measured = np.array([gain for _, _, gain in seen])
    unsure = _noise(np.array(rows), blocks, measured) * np.eye(len(seen))
    unsure += _BLOCK**2 * (blocks[:, None] == blocks[None])
    weight = covariance[:, rows] @ np.linalg.inv(covariance[np.ix_(rows, rows)] + unsure)
    return Belief(
        place,
        mean + weight @ (measured - mean[rows]),
        covariance - weight @ covariance[rows],
    )


def expected(
    together: Belief,  # from the same three
    predicted: Mapping[str, float],
    proposers: Mapping[str, str],
    gains: Mapping[str, Mapping[int, float]],
) -> dict[str, float]:
    """The same names → their speedups, each from the first predictions and the other arms' blocks.

    What all arms have in common (the moment at which off was measured) is corrected by any of
    them; an arm's own blocks are left out, so that it can be held against them.
    """
    found = {}
    for name in predicted:
        others = {other: each for other, each in gains.items() if other != name}
        belief = together if not gains.get(name) else believe(predicted, proposers, others)
        found[name] = exp(belief.of(name))
    return found


def _noise(arms: NDArray[np.int64], blocks: NDArray[np.int64], gains: NDArray[np.float64]) -> float:
    """The variance of an arm in a block, from what is left beside its arm's and block's means."""
    left = gains.copy()
    for _ in range(_ROUNDS):
        for by in (arms, blocks):
            for one in set(by.tolist()):
                left[by == one] -= left[by == one].mean()
    free = max(len(gains) - len(set(arms.tolist())) - len(set(blocks.tolist())) + 1, 0)
    squares = float(np.sum(left**2)) if free else 0.0
    return (_NOISE_WEIGHT * _NOISE**2 + squares) / (_NOISE_WEIGHT + free)
