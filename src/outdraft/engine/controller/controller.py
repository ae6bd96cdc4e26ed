"""The controller: plans the drafts of a round, learns from what became of them."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outdraft.engine.controller.allocation import Allocation, Prices, allocate
from outdraft.engine.controller.ledger import Ledger
from outdraft.engine.controller.live_costs import LiveCosts
from outdraft.engine.controller.posterior import FleetHazards, Frailties
from outdraft.engine.controller.roster import Roster
from outdraft.engine.controller.words import (
    Candidate,
    DraftPlan,
    LookupDraft,
    Outcome,
    StepTimes,
    Why,
)
from outdraft.goodput import survival
from outdraft.step_costs import RoundCosts

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_DRAFT_HAZARD = 0.4  # of a draft's tokens, before anything was seen
# Matches up to so many tokens, and the hazard of what follows them, before anything was seen.
_MATCHES = ((2, 0.6), (4, 0.45), (8, 0.25), (10**9, 0.12))
_DAMPED = 0.95  # what a sequence without drafts expects of them counts so much
_MOST_WEIGHT = 4.0  # of a token of a sequence that is late


@dataclass(slots=True)
class _Round:
    """What the last plan was made of."""

    slots: dict[int, int]  # by sequence
    kinds: dict[int, str]  # of lookups, by sequence
    verification: Floats  # seconds by draft tokens
    tokens: int  # of the step, without drafts
    num: int
    probes: frozenset[int]


class Controller:
    """Chooses proposer and draft length of every sequence in every round.

    Deterministic: the same costs, candidates, outcomes and times give the same plans. Proposers
    that `costs` has are drafts, which are asked after planning; all others are lookups.
    """

    def __init__(self, costs: RoundCosts, *, max_k: int = 8, max_lookup: int = 16) -> None:
        """`max_k`: of drafts; `max_lookup`: of lookups, whose tokens cost nothing to find."""
        self.costs = LiveCosts(costs)
        self._draft = next(iter(costs.proposers), None)
        self._max_k, self._max_lookup = max_k, max_lookup
        self._roster, self._ledger = Roster(), Ledger()
        self._fleet: dict[str, FleetHazards] = {}  # by kind
        self._frailties: dict[str, Frailties] = {}  # by proposer
        self._round: _Round | None = None
        self._now = 0
        self._price = 0.0

    def plan(self, candidates: Seq[Candidate], *, other_tokens: int = 0) -> list[DraftPlan]:
        """One plan per candidate, in order. `other_tokens`: of prompts, in the same step."""
        if not candidates:
            return []
        self._now += 1
        num, roster = len(candidates), self._roster
        slots = roster.slots(candidates)
        rooms = np.array([each.room for each in candidates])
        context = sum([each.context for each in candidates]) / num
        searched = [at for at, each in enumerate(candidates) if each.lookups and each.room > 0]
        width = self._max_lookup if searched else self._max_k
        verification = self.costs.verification(num + other_tokens, num * width, num, context)
        plain = float(verification[0])
        pace = self._ledger.speedup * num / plain
        if other_tokens:
            pace *= plain / float(self.costs.verification(num, 0, num, context)[0])
        gains = np.zeros((num, width))
        proposers: list[str | None] = [self._draft] * num
        is_drafted = np.ones(num, bool)
        prices = Prices()
        if self._draft is not None:
            each = self.costs.drafting(self._draft)
            prices = Prices(each.overhead, each.per_depth, each.per_token)
            gains[:, : self._max_k] = self._draft_gains(slots, rooms)
        kinds = {}
        for at in searched:
            found = self._choose(candidates[at], int(slots[at]), gains[at], prices, pace, num)
            if found is not None:
                kind, proposers[at], gains[at] = found
                kinds[candidates[at].id] = kind
                is_drafted[at] = False
        if self._draft is None:
            is_drafted[:] = False
        expected = gains[:, 0].copy()
        was_off = ~roster.is_drafting[slots]
        gains[was_off] *= _DAMPED
        emitted = float(num)
        late = [at for at, each in enumerate(candidates) if (each.lateness or 0.0) > 1]
        for at in late:
            weight = min(candidates[at].lateness or 1.0, _MOST_WEIGHT)
            gains[at] *= weight
            emitted += weight - 1
        if self._ledger.is_held_back:
            allocation = Allocation(np.zeros(num, np.int64), 0.0, 0.0)
        else:
            allocation = allocate(
                gains, verification, prices, emitted=emitted, is_drafted=is_drafted, pace=pace
            )
        lengths = allocation.lengths
        self._price = allocation.price or self._price
        roster.drafted(slots, lengths > 0, self._now)
        probes = self._probe(slots, lengths, expected, verification, prices, is_drafted, candidates)
        self._round = _Round(
            {each.id: int(slot) for each, slot in zip(candidates, slots, strict=True)},
            kinds,
            verification,
            num + other_tokens,
            num,
            frozenset(candidates[at].id for at in probes),
        )
        return self._plans(candidates, proposers, lengths, probes, expected, allocation.price)

    def _plans(
        self,
        candidates: Seq[Candidate],
        proposers: Seq[str | None],
        lengths: Ints,
        probes: set[int],
        expected: Floats,
        price: float,
    ) -> list[DraftPlan]:
        plans = []
        for at, (each, k) in enumerate(zip(candidates, lengths.tolist(), strict=True)):
            if at in probes:
                plans.append(DraftPlan(each.id, proposers[at], 1, Why.PROBE))
            elif k:
                plans.append(DraftPlan(each.id, proposers[at], k, Why.PAYS, price))
            elif each.room <= 0:
                plans.append(DraftPlan(each.id, None, 0, Why.NO_ROOM))
            elif proposers[at] is None:
                plans.append(DraftPlan(each.id, None, 0, Why.NO_PROPOSER))
            else:
                why = Why.HELD_BACK if self._ledger.is_held_back else Why.LOSES
                plans.append(DraftPlan(each.id, None, 0, why))
        return plans

    def _draft_gains(self, slots: Ints, rooms: Ints) -> Floats:
        assert self._draft is not None
        hazards = self._fleet_of(self._draft, _DRAFT_HAZARD).hazards[:, : self._max_k]
        rates = self._frailties_of(self._draft).rates(slots, hazards[self._roster.bands[slots]])
        gains = survival(rates)
        gains[np.arange(self._max_k) >= rooms[:, None]] = 0.0
        return gains

    def _choose(
        self,
        candidate: Candidate,
        slot: int,
        drafted: Floats,
        prices: Prices,
        pace: float,
        num: int,
    ) -> tuple[str, str, Floats] | None:
        """The kind, proposer and gains of the best lookup, where it is worth more than a draft at
        the price that tokens had in the last round."""
        worth = drafted - self._price - pace * prices.per_token
        worth = worth[worth > 0]
        shared = prices.overhead + prices.per_depth * len(worth)
        best, value = None, float(worth.sum()) - pace * shared / num if len(worth) else 0.0
        for lookup in candidate.lookups:
            length = min(lookup.length, candidate.room, self._max_lookup)
            kind, first = _kind(lookup)
            hazards = self._fleet_of(kind, first).hazards[self._roster.bands[slot]]
            rates = self._frailties_of(lookup.proposer).rates(np.array([slot]), hazards[None])
            gains = survival(rates[0])
            gains[length:] = 0.0
            own = float(np.maximum(gains - self._price, 0.0).sum())
            if own > value or (self._draft is None and best is None):
                best, value = (kind, lookup.proposer, gains), own
        return best

    def _probe(
        self,
        slots: Ints,
        lengths: Ints,
        expected: Floats,
        verification: Floats,
        prices: Prices,
        is_drafted: NDArray[np.bool_],
        candidates: Seq[Candidate],
    ) -> set[int]:
        """Places of those without drafts that get one token: as many as there is money for."""
        due = (lengths == 0) & (expected > 0) & (self._roster.due[slots] <= self._now)
        if not due.any():
            return set()
        money, at = self._ledger.for_probes, int(lengths.sum())
        is_shared = bool((lengths * is_drafted).any())
        catch_up = 0.0
        if self._draft is not None:
            catch_up = self.costs.drafting(self._draft).catch_up
        places = due.nonzero()[0]
        places = places[np.argsort(self._roster.due[slots[places]], kind="stable")]
        taken: set[int] = set()
        for place in places.tolist():
            seconds = float(verification[at + 1] - verification[at])
            if is_drafted[place]:
                seconds += prices.per_token + catch_up * candidates[place].behind
                if not is_shared:
                    seconds += prices.overhead + prices.per_depth
            if seconds > money:
                break
            money -= seconds
            self._ledger.pay_probe(seconds)
            is_shared, at = is_shared or bool(is_drafted[place]), at + 1
            taken.add(place)
        return taken

    def observe(self, outcomes: Seq[Outcome], times: StepTimes) -> None:
        """What became of the last plan: one outcome for each of its candidates that ran."""
        last = self._round
        if last is None:
            return
        by_kind: dict[tuple[str, str], list[Outcome]] = {}
        drafted, depths, emitted = 0, dict[str, list[int]](), 0
        for each in outcomes:
            emitted += each.accepted + 1
            if each.proposer is not None and each.drafted > 0:
                drafted += each.drafted
                kind = last.kinds.get(each.id, each.proposer)
                by_kind.setdefault((kind, each.proposer), []).append(each)
                depths.setdefault(each.proposer, []).append(each.drafted)
        for (kind, proposer), some in by_kind.items():
            self._learn(kind, proposer, some, last)
        self._learn_costs(drafted, depths, emitted, len(outcomes), times, last)

    def _learn(self, kind: str, proposer: str, outcomes: Seq[Outcome], last: _Round) -> None:
        slots = np.array([last.slots[each.id] for each in outcomes])
        drafted = np.array([each.drafted for each in outcomes])
        accepted = np.array([each.accepted for each in outcomes])
        refused, tried = accepted < drafted, np.minimum(accepted + 1, drafted)
        bands, fleet = self._roster.bands[slots], self._fleet_of(kind, _DRAFT_HAZARD)
        tried = np.minimum(tried, fleet.hazards.shape[1])
        sums = fleet.hazards.cumsum(axis=1)[bands, tried - 1]
        is_new = self._frailties_of(proposer).observe(slots, sums, refused, self._now)
        for each, slot in zip(outcomes, slots.tolist(), strict=True):
            if each.id in last.probes:
                self._roster.probed(slot, self._now, each.accepted > 0)
        counted = is_new | np.array([each.id in last.probes for each in outcomes])
        if counted.any():
            fleet.count(bands[counted], tried[counted], refused[counted])

    def _learn_costs(
        self,
        drafted: int,
        depths: dict[str, list[int]],
        emitted: int,
        num: int,
        times: StepTimes,
        last: _Round,
    ) -> None:
        expected = float(last.verification[min(drafted, len(last.verification) - 1)])
        drafting = 0.0
        for proposer, lengths in depths.items():
            if proposer in self.costs.costs.proposers:
                each = self.costs.drafting(proposer).seconds(max(lengths), sum(lengths))
                drafting += each
                if each and times.drafting.get(proposer):
                    self.costs.observe_drafting(proposer, each, times.drafting[proposer])
        self._ledger.settle(float(last.verification[0]), expected + drafting, emitted / max(num, 1))
        if times.verification > 0:
            self.costs.observe(last.tokens + drafted, expected, times.verification)

    def release(self, id: int) -> None:
        """The sequence is over. Harmless when it is unknown."""
        slot = self._roster.leave(id)
        if slot is not None:
            for each in self._frailties.values():
                each.clear(slot)

    def _fleet_of(self, kind: str, first: float) -> FleetHazards:
        if kind not in self._fleet:
            width = max(self._max_k, self._max_lookup)
            self._fleet[kind] = FleetHazards(width, first)
        return self._fleet[kind]

    def _frailties_of(self, proposer: str) -> Frailties:
        frailties = self._frailties.setdefault(proposer, Frailties())
        frailties.grow(self._roster.size)
        return frailties


def _kind(lookup: LookupDraft) -> tuple[str, float]:
    """Matches of about the same length are counted together; with the first hazard of the kind."""
    most, first = next(each for each in _MATCHES if lookup.match <= each[0])
    return f"{lookup.proposer} {most}", first
