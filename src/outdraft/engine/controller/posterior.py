"""What is believed of acceptance: by position for the fleet, and how each sequence differs.

A draft token is refused with a chance (a hazard) that depends on its position, the proposer and
the temperature band: that is counted over the fleet. A sequence multiplies all hazards by a factor
of its own, its frailty, whose prior is Gamma(s, s) around 1 and whose posterior mean is

    (s + refused) / (s + refused that the fleet's hazards would have given).

The fleet counts the first rounds of each sequence and probes. Later rounds are of sequences that
were kept because they win: they would flatter it.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

BANDS = (0.0, 0.4, 0.8, 1.1)  # temperatures up to each; the last band is above all
_PRIOR_TRIALS = 3.0
_BAND_TRIALS = 6.0  # what all bands together weigh beside a band's own
_MOST_TRIALS = 300.0  # more are halved: older ones count less
_STRENGTH = 2.0  # of the frailty's prior, in refused tokens
_KEPT = 0.95  # of a sequence's evidence from one of its rounds to the next
_LEAST_KEPT = 0.5  # after a pause
_FLEET_ROUNDS = 16  # of each sequence
_LARGEST_HAZARD = 0.98


def band_of(temperature: float) -> int:
    return bisect_left(BANDS, temperature)


class FleetHazards:
    """How often each position was refused where all before it were accepted, of one kind of
    draft."""

    def __init__(self, width: int, first: float) -> None:
        """`first`: the hazard before anything was seen."""
        shape = (len(BANDS) + 1, width)
        self._first = first
        self._tried, self._refused = np.zeros(shape), np.zeros(shape)
        self.hazards = np.full(shape, first)  # (bands, positions)

    def count(self, bands: Ints, tried: Ints, refused: NDArray[np.bool_]) -> None:
        """Rounds in which `tried` positions were decided, the last one refused or not."""
        num_bands, width = self._tried.shape
        size = num_bands * (width + 1)
        ends = np.bincount(bands * (width + 1) + tried, minlength=size)
        reached = ends.reshape(num_bands, -1)[:, ::-1].cumsum(axis=1)[:, ::-1]
        self._tried += reached[:, 1:]
        at = (bands * (width + 1) + tried)[refused]
        self._refused += np.bincount(at, minlength=size).reshape(num_bands, -1)[:, 1:]
        full = self._tried[:, 0] > _MOST_TRIALS
        if full.any():
            self._tried[full] *= 0.5
            self._refused[full] *= 0.5
        # A position that few reached is taken to be as the one before it.
        hazard, everywhere = self._first, []
        refusals, trials = self._refused.sum(axis=0).tolist(), self._tried.sum(axis=0).tolist()
        for some, all_ in zip(refusals, trials, strict=True):
            hazard = (_PRIOR_TRIALS * hazard + some) / (_PRIOR_TRIALS + all_)
            everywhere.append(hazard)
        prior = _BAND_TRIALS * np.array(everywhere)
        self.hazards = (prior + self._refused) / (_BAND_TRIALS + self._tried)


class Frailties:
    """How much more often than the fleet's the drafts of each sequence are refused, of one
    proposer. By slot."""

    def __init__(self) -> None:
        self._refused: Floats = np.zeros(8)
        self._expected: Floats = np.zeros(8)
        self.rounds: Ints = np.zeros(8, np.int64)
        self._last: Ints = np.zeros(8, np.int64)

    def grow(self, size: int) -> None:
        more = max(size, 2 * len(self.rounds)) - len(self.rounds) if size > len(self.rounds) else 0
        if more:
            self._refused, self._expected = (
                np.pad(each, (0, more)) for each in (self._refused, self._expected)
            )
            self.rounds, self._last = (
                np.pad(each, (0, more)) for each in (self.rounds, self._last)
            )

    def clear(self, slot: int) -> None:
        if slot < len(self.rounds):
            self._refused[slot] = self._expected[slot] = 0.0
            self.rounds[slot] = self._last[slot] = 0

    def means(self, slots: Ints) -> Floats:
        refused, expected = self._refused[slots], self._expected[slots]
        means: Floats = (_STRENGTH + refused) / (_STRENGTH + expected)
        return means

    def rates(self, slots: Ints, hazards: Floats) -> Floats:
        """The chance (n, positions) to be accepted where all before are, from the fleet's hazards
        (n, positions)."""
        own = hazards * self.means(slots)[:, None]
        return 1 - np.minimum(own, _LARGEST_HAZARD)

    def observe(
        self, slots: Ints, expected: Floats, refused: NDArray[np.bool_], now: int
    ) -> NDArray[np.bool_]:
        """`expected`: refusals by the fleet's hazards. Evidence fades from round to round, and
        over a pause, but only when there is new evidence. True for rounds that the fleet counts."""
        pause = np.minimum(now - self._last[slots], 64)
        kept = np.maximum(_KEPT**pause, _LEAST_KEPT)
        self._refused[slots] = self._refused[slots] * kept + refused
        self._expected[slots] = self._expected[slots] * kept + expected
        self._last[slots] = now
        self.rounds[slots] += 1
        return self.rounds[slots] <= _FLEET_ROUNDS
