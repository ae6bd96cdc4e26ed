"""What is believed of acceptance: by position for the fleet, and how each sequence differs.

A draft token is refused with a chance (a hazard) that depends on its position, the proposer and
the temperature band: that is counted over the fleet. A sequence multiplies all hazards by a factor
of its own, its frailty, whose prior is Gamma(s, s) around 1 and whose posterior mean is

    (s + refused) / (s + refused that the fleet's hazards would have given).
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

BANDS = (0.0, 0.4, 0.8, 1.1)  # temperatures up to each; the last band is above all
_FIRST_HAZARD = 0.4  # before anything was seen
_PRIOR_TRIALS = 4.0
_BAND_TRIALS = 6.0  # what all bands together weigh beside a band's own
_MOST_TRIALS = 400.0  # more are scaled down to this: older ones count less
_STRENGTH = 2.0  # of the frailty's prior, in refused tokens
_KEPT = 0.96  # of a sequence's evidence from one of its rounds to the next
_FLEET_ROUNDS = 16  # of each sequence that the fleet counts; later ones were chosen for winning


def band_of(temperature: float) -> int:
    return bisect_left(BANDS, temperature)


class FleetHazards:
    """How often each position was refused where all before it were accepted, of one proposer."""

    def __init__(self, width: int) -> None:
        shape = (len(BANDS) + 1, width)
        self._tried, self._refused = np.zeros(shape), np.zeros(shape)
        self.hazards = np.full(shape, _FIRST_HAZARD)  # (bands, positions)

    def count(self, band: int, tried: int, refused: bool) -> None:
        """A round in which `tried` positions were decided, the last one refused or not."""
        self._tried[band, :tried] += 1
        if refused:
            self._refused[band, tried - 1] += 1
        if self._tried[band, 0] > _MOST_TRIALS:
            self._tried[band] *= 0.5
            self._refused[band] *= 0.5
        of_all = self._refused.sum(axis=0), self._tried.sum(axis=0)
        # A position nobody reached is taken to be as the one before it.
        prior = _FIRST_HAZARD
        everywhere = np.empty(self._tried.shape[1])
        for at, (refusals, trials) in enumerate(zip(*of_all, strict=True)):
            prior = (_PRIOR_TRIALS * prior + refusals) / (_PRIOR_TRIALS + trials)
            everywhere[at] = prior
        self.hazards = (_BAND_TRIALS * everywhere + self._refused) / (_BAND_TRIALS + self._tried)


class Posterior:
    """Acceptance of one proposer for every sequence."""

    def __init__(self, width: int) -> None:
        self.fleet = FleetHazards(width)
        self._own: dict[int, tuple[float, float, int]] = {}  # refused, expected, rounds
        self._width = width

    def frailty(self, id: int) -> float:
        refused, expected, _ = self._own.get(id, (0.0, 0.0, 0))
        return (_STRENGTH + refused) / (_STRENGTH + expected)

    def rates(self, id: int, band: int) -> Floats:
        """The chance of each position to be accepted where all before it are."""
        hazards: Floats = self.fleet.hazards[band]
        return 1 - np.minimum(hazards * self.frailty(id), 0.98)

    def observe(self, id: int, band: int, drafted: int, accepted: int) -> None:
        drafted = min(drafted, self._width)
        tried = min(accepted + 1, drafted)
        is_refused = accepted < drafted
        refused, expected, rounds = self._own.get(id, (0.0, 0.0, 0))
        due = float(self.fleet.hazards[band, :tried].sum())
        self._own[id] = refused * _KEPT + is_refused, expected * _KEPT + due, rounds + 1
        if rounds < _FLEET_ROUNDS:
            self.fleet.count(band, tried, is_refused)

    def release(self, id: int) -> None:
        self._own.pop(id, None)
