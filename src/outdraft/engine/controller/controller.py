"""The controller: plans the drafts of a round, learns from what became of them."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass

import numpy as np

from outdraft.engine.controller.allocation import Allocation, Prices, allocate
from outdraft.engine.controller.ledger import Ledger
from outdraft.engine.controller.live_costs import LiveCosts
from outdraft.engine.controller.posterior import Bools, Floats, Ints, Posterior
from outdraft.engine.controller.probing import choose_probes
from outdraft.engine.controller.roster import Roster
from outdraft.engine.controller.words import (
    Candidate,
    DraftPlan,
    LookupDraft,
    Outcome,
    StepTimes,
    Why,
)
from outdraft.step_costs import ProposerCosts, RoundCosts

_DRAFT_HAZARD = 0.4  # of a draft's tokens, before anything was seen
# Matches up to so many tokens, and the hazard of what follows them, before anything was seen.
_MATCHES = ((2, 0.6), (4, 0.45), (8, 0.25), (10**9, 0.12))
_LIKENESS = 0.3  # above it, a prompt comes again often: its matches are counted apart
_DAMPED = 0.95  # what a sequence without drafts expects of them counts so much
_MOST_WEIGHT = 4.0  # of a token of a sequence that is late


@dataclass(slots=True)
class _Batch:
    """What a plan is made of: one row for every candidate."""

    candidates: Seq[Candidate]
    slots: Ints
    tokens: int  # of the step, without drafts
    verification: Floats  # seconds by draft tokens
    gains: Floats  # (n, positions)
    proposers: list[str | None]
    kinds: Ints
    is_drafted: Bools  # by the draft; else looked up
    prices: ProposerCosts
    probes: frozenset[int] = frozenset()  # rows


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
        self._posterior = Posterior(max(max_k, max_lookup))
        self._batch: _Batch | None = None
        self._now, self._price = 0, 0.0

    def plan(self, candidates: Seq[Candidate], *, other_tokens: int = 0) -> list[DraftPlan]:
        """One plan per candidate, in order. `other_tokens`: of prompts, in the same step."""
        if not candidates:
            return []
        self._now += 1
        num, ledger = len(candidates), self._ledger
        batch = self._batch = self._drafts(candidates, other_tokens)
        pace = self._pace(batch, other_tokens)
        self._look_up(batch, pace)
        emitted, gains = self._weighted(batch)
        prices = Prices(batch.prices.overhead, batch.prices.per_depth, batch.prices.per_token)
        allocation = Allocation(np.zeros(num, np.int64), 0.0, 0.0)
        if not ledger.is_held_back:
            allocation = allocate(
                gains,
                batch.verification,
                prices,
                emitted=emitted,
                is_drafted=batch.is_drafted,
                pace=pace,
            )
        lengths = allocation.lengths
        self._price = allocation.price or self._price
        self._roster.drafted(batch.slots, lengths == 0, self._now)
        self._probe(batch, lengths, prices)
        return self._plans(batch, lengths.tolist(), allocation.price)

    def observe(self, outcomes: Seq[Outcome], times: StepTimes) -> None:
        """What became of the last plan: one outcome for each of its candidates that ran."""
        batch = self._batch
        if batch is None or not outcomes:
            return
        rows = {each.id: row for row, each in enumerate(batch.candidates)}
        drafted = [each for each in outcomes if each.proposer is not None and each.drafted > 0]
        if drafted:
            self._learn(batch, drafted, [rows[each.id] for each in drafted])
        expected = self._learn_costs(batch, drafted, times)
        emitted = len(outcomes) + sum([each.accepted for each in drafted])
        self._ledger.settle(float(batch.verification[0]), expected, emitted / len(outcomes))

    def release(self, id: int) -> None:
        """The sequence is over. Harmless when it is unknown."""
        slot = self._roster.leave(id)
        if slot is not None and slot < self._posterior.frailties.means.shape[1]:
            self._posterior.frailties.clear(slot)

    def _drafts(self, candidates: Seq[Candidate], other_tokens: int) -> _Batch:
        """The batch with what the draft would give."""
        num, slots = len(candidates), self._roster.slots(candidates)
        rooms = np.array([each.room for each in candidates])
        context = sum([each.context for each in candidates]) / num
        has_lookups = any(each.lookups for each in candidates)
        width = self._max_lookup if has_lookups else self._max_k
        tokens, gains = num + other_tokens, np.zeros((num, width))
        costs, kinds = ProposerCosts(), np.zeros(num, np.int64)
        if self._draft is not None:
            costs = self.costs.drafting(self._draft)
            kind = self._posterior.kind(self._draft, _DRAFT_HAZARD)
            proposer = self._posterior.proposer(self._draft, self._roster.size)
            every = self._posterior.gains(kind, proposer, slots, self._roster.bands[slots])
            gains[:, : self._max_k] = every[:, : self._max_k]
            kinds[:] = kind
        gains[np.arange(width) >= rooms[:, None]] = 0.0
        return _Batch(
            candidates,
            slots,
            tokens,
            self.costs.verification(tokens, num * width, num, context),
            gains,
            [self._draft] * num,
            kinds,
            np.full(num, self._draft is not None),
            costs,
        )

    def _pace(self, batch: _Batch, other_tokens: int) -> float:
        """Tokens per second of late: what a second is worth. Prompts in the step are not counted,
        which take the time that they take."""
        num = len(batch.candidates)
        seconds = float(batch.verification[0])
        if other_tokens:
            seconds = float(self.costs.verification(num, 0, num, self.costs.costs.context)[0])
        return self._ledger.speedup * num / seconds

    def _look_up(self, batch: _Batch, pace: float) -> None:
        """Takes the best lookup of a candidate where it is worth more than the draft, at the price
        that a token had in the last round."""
        found = [
            (row, lookup)
            for row, each in enumerate(batch.candidates)
            for lookup in each.lookups
            if each.room > 0 and lookup.length > 0
        ]
        if not found:
            return
        rows = np.array([row for row, _ in found])
        kinds = np.array([self._kind(batch.candidates[row], lookup) for row, lookup in found])
        size, slots = self._roster.size, batch.slots[rows]
        proposers = np.array([self._posterior.proposer(each.proposer, size) for _, each in found])
        lengths = np.array([min(each.length, batch.candidates[row].room) for row, each in found])
        gains = self._posterior.gains(kinds, proposers, slots, self._roster.bands[slots])
        gains = gains[:, : batch.gains.shape[1]]
        gains[np.arange(gains.shape[1]) >= lengths[:, None]] = 0.0
        values = np.maximum(gains - self._price, 0.0).sum(axis=1)
        own = np.maximum(batch.gains - self._price - pace * batch.prices.per_token, 0.0)
        shared = batch.prices.overhead + batch.prices.per_depth * (own > 0).sum(axis=1)
        best = own.sum(axis=1) - pace * shared / len(batch.candidates)
        best[~batch.is_drafted] = -1.0
        for at, (row, lookup) in enumerate(found):
            if values[at] > best[row]:
                best[row], batch.gains[row] = values[at], gains[at]
                batch.kinds[row], batch.proposers[row] = kinds[at], lookup.proposer
                batch.is_drafted[row] = False

    def _kind(self, candidate: Candidate, lookup: LookupDraft) -> int:
        """Matches of about the same length are counted together."""
        most, first = next(each for each in _MATCHES if lookup.match <= each[0])
        alike = candidate.likeness is not None and candidate.likeness > _LIKENESS
        name = f"{lookup.proposer} {most}{' alike' if alike else ''}"
        return self._posterior.kind(name, first)

    def _weighted(self, batch: _Batch) -> tuple[float, Floats]:
        """Tokens without drafts, and gains: damped for those without drafts, more for the late."""
        is_off = self._roster.is_off[batch.slots]
        weights = np.where(is_off, _DAMPED, 1.0)
        emitted = float(len(weights))
        for row, each in enumerate(batch.candidates):
            if each.lateness is not None and each.lateness > 1:
                weight = min(each.lateness, _MOST_WEIGHT)
                weights[row] *= weight
                emitted += weight - 1
        return emitted, batch.gains * weights[:, None]

    def _probe(self, batch: _Batch, lengths: Ints, prices: Prices) -> None:
        """One token for some without drafts."""
        is_due = (lengths == 0) & (self._roster.due[batch.slots] <= self._now)
        is_due &= batch.gains[:, 0] > 0
        if not is_due.any():
            return
        rows = is_due.nonzero()[0]
        rows = rows[self._roster.due[batch.slots[rows]].argsort(kind="stable")]
        probes, seconds = choose_probes(
            [(row, bool(batch.is_drafted[row]), batch.candidates[row].behind) for row in rows],
            self._ledger.for_probes,
            batch.verification,
            int(lengths.sum()),
            prices,
            batch.prices.catch_up,
            bool(lengths[batch.is_drafted].any()),
        )
        self._ledger.pay_probes(seconds)
        batch.probes = frozenset(probes)

    def _plans(self, batch: _Batch, lengths: list[int], price: float) -> list[DraftPlan]:
        none = Why.HELD_BACK if self._ledger.is_held_back else Why.LOSES
        plans = []
        for row, (each, k) in enumerate(zip(batch.candidates, lengths, strict=True)):
            proposer = batch.proposers[row]
            if k:
                plans.append(DraftPlan(each.id, proposer, k, Why.PAYS, price))
            elif row in batch.probes:
                plans.append(DraftPlan(each.id, proposer, 1, Why.PROBE))
            elif each.room <= 0:
                plans.append(DraftPlan(each.id, None, 0, Why.NO_ROOM))
            else:
                why = Why.NO_PROPOSER if proposer is None else none
                plans.append(DraftPlan(each.id, None, 0, why))
        return plans

    def _learn(self, batch: _Batch, outcomes: Seq[Outcome], rows: list[int]) -> None:
        at, size = np.array(rows), self._roster.size
        numbers = {
            name: self._posterior.proposer(name, size)
            for name in {each.proposer for each in outcomes if each.proposer is not None}
        }
        proposers = np.array([numbers[each.proposer or ""] for each in outcomes])
        slots = batch.slots[at]
        probed = np.array([row in batch.probes for row in rows])
        self._posterior.observe(
            batch.kinds[at],
            (proposers, slots),
            self._roster.bands[slots],
            np.array([each.drafted for each in outcomes]),
            np.array([each.accepted for each in outcomes]),
            probed,
            self._now,
        )
        for each, row in zip(outcomes, rows, strict=True):
            if row in batch.probes:
                self._roster.probed(int(batch.slots[row]), self._now, each.accepted > 0)

    def _learn_costs(self, batch: _Batch, outcomes: Seq[Outcome], times: StepTimes) -> float:
        """Seconds that the round was expected to take."""
        num_drafted = sum([each.drafted for each in outcomes])
        expected = float(batch.verification[min(num_drafted, len(batch.verification) - 1)])
        if times.verification > 0:
            self.costs.observe(batch.tokens + num_drafted, expected, times.verification)
        by_draft = {each.id: each.drafted for each in outcomes if each.proposer == self._draft}
        if self._draft is None or not by_draft:
            return expected
        behind = sum([each.behind for each in batch.candidates if each.id in by_draft])
        lengths = by_draft.values()
        drafting = batch.prices.seconds(max(lengths), sum(lengths), behind)
        if drafting > 0 and times.drafting.get(self._draft, 0.0) > 0:
            self.costs.observe_drafting(self._draft, drafting, times.drafting[self._draft])
        return expected + drafting
