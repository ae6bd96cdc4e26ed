"""What is believed of acceptance: by position for the fleet, and how each sequence differs.

A draft token is refused with a chance (a hazard) that depends on its position, the kind of draft
and the temperature band: that is counted over the fleet. A sequence multiplies all hazards by a
factor of its own, its frailty, whose prior is Gamma(s, s) around 1 and whose posterior mean is

    (s + refused) / (s + refused that the fleet's hazards would have given).

The fleet counts the first rounds of each sequence and probes. Later rounds are of sequences that
were kept because they win: they would flatter it.

Arrays are indexed by kind (what the fleet tells apart: a draft, or a lookup after a match of some
length), proposer, temperature band and slot (a number that a sequence has while it is known).
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from outdraft.goodput import survival

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

BANDS = (0.0, 0.4, 0.8, 1.1)  # temperatures up to each; the last band is above all
# The hazard of a band over that of all, before the band was seen: hot texts are guessed less often.
_HOTTER = np.array([[1.0], [1.0], [1.05], [1.3], [1.5]])
_PRIOR_TRIALS = 8.0
_BAND_TRIALS = 6.0  # what all bands together weigh beside a band's own
_MOST_TRIALS = 300.0  # more are halved: older ones count less
_STRENGTH = 2.0  # of the frailty's prior, in refused tokens
_KEPT = 0.95  # of a sequence's evidence from one of its rounds to the next
_LEAST_KEPT = 0.5  # after a pause
_FLEET_ROUNDS = 16  # of each sequence
_LARGEST_HAZARD = 0.98
# Later positions have at least so much of a sequence's hazard at the first: the fleet's fall partly
# because only good sequences come that far.
_LEAST_SHARE = 0.7

_KEPT_AFTER = np.maximum(_KEPT ** np.arange(65.0), _LEAST_KEPT)  # rounds


def band_of(temperature: float) -> int:
    return bisect_left(BANDS, temperature)


class FleetHazards:
    """How often each position was refused where all before it were accepted: (kinds, bands,
    positions)."""

    def __init__(self, width: int) -> None:
        shape = (0, len(BANDS) + 1, width)
        self._first: list[float] = []
        self._tried, self._refused = np.zeros(shape), np.zeros(shape)
        self.hazards, self.sums = np.zeros(shape), np.zeros(shape)  # sums: over positions

    def add_kind(self, first: float) -> int:
        """`first`: its hazard before anything was seen."""
        self._first.append(first)
        shape = (1, *self.hazards.shape[1:])
        self._tried, self._refused = (
            np.concatenate([each, np.zeros(shape)]) for each in (self._tried, self._refused)
        )
        hazards = np.minimum(np.full(shape, first) * _HOTTER, _LARGEST_HAZARD)
        self.hazards = np.concatenate([self.hazards, hazards])
        self.sums = self.hazards.cumsum(axis=2)
        return len(self._first) - 1

    def count(
        self, kinds: Ints, bands: Ints, tried: Ints, refused: Bools, frailties: Floats
    ) -> None:
        """Rounds in which `tried` positions were decided, the last one refused or not. Those who
        come beyond the first position are refused less than others: each counts there as much as
        its frailty."""
        of_kinds, of_bands, of_width = self._tried.shape
        ends = (kinds * of_bands + bands) * (of_width + 1) + tried
        size, shape = of_kinds * of_bands * (of_width + 1), (of_kinds, of_bands, of_width + 1)
        reached = np.bincount(ends, frailties, size).reshape(shape)
        reached = reached[..., ::-1].cumsum(axis=2)[..., ::-1]
        reached[..., 1] = np.bincount(ends, minlength=size).reshape(shape).sum(axis=2)
        self._tried += reached[..., 1:]
        self._refused += np.bincount(ends[refused], minlength=size).reshape(shape)[..., 1:]
        full = self._tried[..., 0] > _MOST_TRIALS
        if full.any():
            self._tried[full] *= 0.5
            self._refused[full] *= 0.5
        for kind in np.unique(kinds).tolist():
            self._work_out(kind)
        self.sums = self.hazards.cumsum(axis=2)

    def _work_out(self, kind: int) -> None:
        # A position that few reached is taken to be as the one before it.
        hazard, everywhere = self._first[kind], []
        tried, refused = self._tried[kind], self._refused[kind]
        sums = refused.sum(axis=0).tolist(), tried.sum(axis=0).tolist()
        for some, of_all in zip(*sums, strict=True):
            hazard = (_PRIOR_TRIALS * hazard + some) / (_PRIOR_TRIALS + of_all)
            everywhere.append(hazard)
        prior = _BAND_TRIALS * np.minimum(np.array(everywhere) * _HOTTER, _LARGEST_HAZARD)
        self.hazards[kind] = (prior + refused) / (_BAND_TRIALS + tried)


class Frailties:
    """How much more often than the fleet's the drafts of each sequence are refused: (proposers,
    slots)."""

    def __init__(self) -> None:
        # Refused, refused by the fleet's hazards; rounds, the last of them; posterior means.
        self._refused, self._expected = np.zeros((0, 8)), np.zeros((0, 8))
        self._rounds, self._last = np.zeros((0, 8), np.int64), np.zeros((0, 8), np.int64)
        self.means = np.ones((0, 8))

    def grow(self, num_proposers: int, num_slots: int) -> None:
        proposers, slots = self.means.shape
        if num_proposers > proposers or num_slots > slots:
            num_slots = slots if num_slots <= slots else max(num_slots, 2 * slots)
            more = ((0, max(num_proposers - proposers, 0)), (0, num_slots - slots))
            self._refused = np.pad(self._refused, more)
            self._expected = np.pad(self._expected, more)
            self._rounds, self._last = np.pad(self._rounds, more), np.pad(self._last, more)
            self.means = np.pad(self.means, more, constant_values=1.0)

    def clear(self, slot: int) -> None:
        for each in (self._refused, self._expected, self._rounds, self._last):
            each[:, slot] = 0
        self.means[:, slot] = 1.0

    def observe(self, at: tuple[Ints, Ints], expected: Floats, refused: Bools, now: int) -> Bools:
        """Evidence fades from round to round, and over a pause, but only when there is new
        evidence. True for the rounds that the fleet counts."""
        kept = _KEPT_AFTER[np.minimum(now - self._last[at], len(_KEPT_AFTER) - 1)]
        of_refused, of_expected = self._refused[at] * kept + refused, self._expected[at] * kept
        of_expected += expected
        self._refused[at], self._expected[at], self._last[at] = of_refused, of_expected, now
        self.means[at] = (_STRENGTH + of_refused) / (_STRENGTH + of_expected)
        self._rounds[at] += 1
        return self._rounds[at] <= _FLEET_ROUNDS


class Posterior:
    """Both together: what a draft is expected to give."""

    def __init__(self, width: int) -> None:
        self.fleet, self.frailties = FleetHazards(width), Frailties()
        self._kinds: dict[str, int] = {}
        self._proposers: dict[str, int] = {}

    def kind(self, name: str, first: float) -> int:
        if name not in self._kinds:
            self._kinds[name] = self.fleet.add_kind(first)
        return self._kinds[name]

    def proposer(self, name: str, num_slots: int) -> int:
        number = self._proposers.setdefault(name, len(self._proposers))
        self.frailties.grow(len(self._proposers), num_slots)
        return number

    def gains(self, kinds: Ints | int, proposers: Ints | int, slots: Ints, bands: Ints) -> Floats:
        """(n, positions): the chance of each position to be accepted with all before it."""
        rates = self.fleet.hazards[kinds, bands]
        rates *= self.frailties.means[proposers, slots][:, None]
        np.minimum(rates, _LARGEST_HAZARD, out=rates)
        np.maximum(rates, _LEAST_SHARE * rates[:, :1], out=rates)
        return survival(1.0 - rates)

    def observe(
        self,
        kinds: Ints,
        at: tuple[Ints, Ints],
        bands: Ints,
        drafted: Ints,
        accepted: Ints,
        probed: Bools,
        now: int,
    ) -> None:
        """Rounds with drafts; `at`: proposers and slots."""
        refused = accepted < drafted
        tried = np.minimum(np.minimum(accepted + 1, drafted), self.fleet.hazards.shape[2])
        expected = self.fleet.sums[kinds, bands, tried - 1]
        frailties = self.frailties.means[at]
        counted = self.frailties.observe(at, expected, refused, now) | probed
        if counted.any():
            some = kinds[counted], bands[counted], tried[counted], refused[counted]
            self.fleet.count(*some, frailties[counted])
