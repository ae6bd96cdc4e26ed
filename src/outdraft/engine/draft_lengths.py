"""Which draft length each text gets in a step: the one place where that is chosen.

By what the engine was started with and what the request asks for, within the limits that an
operator sets while it runs. A step of a canary is the other way round: without drafts where there
are some, and with drafts where only the limits keep them away.
"""

import math
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

from outdraft.engine.step import Segment
from outdraft.speculation import MAX_K, Schedule, Speculation, scheduled_k

Temperatures = tuple[float, float]  # above the first, up to the second

EVERYBODY: Temperatures = (-math.inf, math.inf)


@dataclass(frozen=True, slots=True)
class Limits:
    """No draft is longer, whatever else is set. By running texts; empty: there are none."""

    schedule: Schedule = ()
    before: Schedule = ()  # the last ones that allowed drafts: those of a canary where none are
    temperatures: tuple[Temperatures, ...] = ()  # of texts that get no drafts

    def k_at(self, num_running: int) -> int:
        return _k_at(self.schedule, num_running)

    @property
    def stops_all(self) -> bool:
        """At every load."""
        return bool(self.schedule) and not any(k for _, _, k in self.schedule)

    def stops(self, speculation: Speculation, num_running: int) -> bool:
        """Whether they alone keep drafts away, at this load. Never where drafts change texts: what
        was stopped then must not be tried."""
        return _would_draft(speculation, num_running) and not self.k_at(num_running)

    def stops_at(self, temperature: float) -> bool:
        return any(_is_in(each, temperature) for each in self.temperatures)

    def stopped(
        self, speculation: Speculation, num_running: int, temperatures: Seq[float]
    ) -> tuple[bool, ...]:
        """Of texts with these temperatures: whether they alone keep drafts from each."""
        would, all_of_them = _would_draft(speculation, num_running), not self.k_at(num_running)
        return tuple(would and (all_of_them or self.stops_at(each)) for each in temperatures)

    def followed_by(
        self, schedule: Schedule, temperatures: tuple[Temperatures, ...] = ()
    ) -> "Limits":
        """Others, which know what was allowed before."""
        before = self.before if self.stops_all else self.schedule
        return Limits(schedule, before, temperatures)

    def lifted(self, num_running: int) -> "Limits":
        """For a step at a load where they stop everything."""
        return replace(self, schedule=self.before if _k_at(self.before, num_running) else ())


NO_LIMITS = Limits()


def draft_lengths(
    speculation: Speculation,
    num_running: int,
    limits: Limits,
    segments: Seq[Segment],
    inverted: Temperatures | None = None,
) -> list[int]:
    """k of every segment in this round. One that is not about to decode gets 0. `inverted`: texts
    for which it is the other way round."""
    if inverted == EVERYBODY:
        if not limits.stops(speculation, num_running):
            return [0] * len(segments)
        limits, inverted = limits.lifted(num_running), None
    most, default = limits.k_at(num_running), speculation.k_at(num_running)
    lengths = []
    for segment in segments:
        own, temperature = segment.sequence.max_draft_tokens, segment.sequence.params.temperature
        gets_none = limits.stops_at(temperature)
        if inverted is not None and _is_in(inverted, temperature):
            gets_none = not gets_none or speculation.is_lossy
        can_draft = segment.is_round and segment.num_tokens == 1 and not gets_none
        lengths.append(min(default if own is None else own, most) if can_draft else 0)
    return lengths


def _would_draft(speculation: Speculation, num_running: int) -> bool:
    """And change no text by it."""
    return speculation.k_at(num_running) > 0 and not speculation.is_lossy


def _is_in(temperatures: Temperatures, temperature: float) -> bool:
    return temperatures[0] < temperature <= temperatures[1]


def _k_at(schedule: Schedule, num_running: int) -> int:
    k = scheduled_k(schedule, num_running)
    return MAX_K if k is None else k
