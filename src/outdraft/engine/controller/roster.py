"""The sequences that are known, by slot, and when each is probed next."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import numpy as np

from outdraft.engine.controller.posterior import Bools, Floats, Ints, band_of
from outdraft.engine.controller.words import Candidate

_FIRST_GAP, _LONGEST_GAP = 4, 32  # rounds between probes of a sequence; they double
_MEMORY = 0.9  # of what a sequence gets and takes, from round to round


class Roster:
    def __init__(self) -> None:
        self._slots: dict[int, int] = {}
        self._free: list[int] = []
        self.size = 0
        self.bands, self._gap = np.zeros(8, np.int64), np.zeros(8, np.int64)
        self.due = np.zeros(8, np.int64)
        self.is_off = np.zeros(8, bool)  # without drafts in the last round
        # Of late: tokens in a round, and their share of its seconds, in those of a plain step.
        self._tokens, self._seconds = np.ones(8), np.ones(8)

    def slots(self, candidates: Seq[Candidate]) -> Ints:
        known = self._slots
        return np.array(
            [known[each.id] if each.id in known else self._enter(each) for each in candidates]
        )

    def _enter(self, candidate: Candidate) -> int:
        if self._free:
            slot = self._free.pop()
        else:
            slot, self.size = self.size, self.size + 1
            if self.size > len(self.bands):
                more = (0, len(self.bands))
                self.bands, self._gap = np.pad(self.bands, more), np.pad(self._gap, more)
                self.due, self.is_off = np.pad(self.due, more), np.pad(self.is_off, more)
                self._tokens, self._seconds = (
                    np.pad(self._tokens, more),
                    np.pad(self._seconds, more),
                )
        self._slots[candidate.id] = slot
        self.bands[slot] = band_of(candidate.temperature)
        self.is_off[slot], self.due[slot], self._gap[slot] = False, 0, _FIRST_GAP
        self._tokens[slot] = self._seconds[slot] = 1.0
        return slot

    def leave(self, id: int) -> int | None:
        """Its slot, which is free for another."""
        slot = self._slots.pop(id, None)
        if slot is not None:
            self._free.append(slot)
        return slot

    def seconds_per_token(self, slots: Ints) -> Floats:
        """Of each, of late; 1 is a plain step."""
        values: Floats = self._seconds[slots] / self._tokens[slots]
        return values

    def account(self, slots: Ints, seconds: Floats | float, tokens: Floats | float) -> None:
        """A round: tokens that each is expected to get, for so much of a plain step."""
        self._seconds[slots] = _MEMORY * self._seconds[slots] + (1 - _MEMORY) * seconds
        self._tokens[slots] = _MEMORY * self._tokens[slots] + (1 - _MEMORY) * tokens

    def drafted(self, slots: Ints, is_off: Bools, now: int) -> None:
        """Those that stopped are probed soon."""
        stopped = slots[is_off & ~self.is_off[slots]]
        if len(stopped):
            self._gap[stopped] = _FIRST_GAP
            self.due[stopped] = now + _FIRST_GAP
        self.is_off[slots] = is_off

    def probed(self, slot: int, now: int, is_right: bool) -> None:
        """Again at once after a right guess, else after twice as long."""
        gap = 1 if is_right else min(2 * int(self._gap[slot]), _LONGEST_GAP)
        self._gap[slot], self.due[slot] = max(gap, _FIRST_GAP // 2), now + gap
