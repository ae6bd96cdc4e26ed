"""The controller: plans the drafts of a round, learns from what became of them."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import numpy as np

from outdraft.engine.controller.allocation import Allocation, Prices, allocate
from outdraft.engine.controller.ledger import Ledger
from outdraft.engine.controller.live_costs import LiveCosts
from outdraft.engine.controller.posterior import Bools, Floats, Ints, Posterior
from outdraft.engine.controller.probing import choose_probes
from outdraft.engine.controller.repeats import Repeats
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
_TINY_S = 1e-9
_DAMPED = 0.97  # a token counts so much for a sequence that had no drafts in the last round
_MOST_WEIGHT = 4.0  # of a token of a sequence that is late
_FEW_TEXTS = 2
_FEW_BEHIND = 16  # tokens that a draft reads on the way
_HORIZON = 96  # tokens over which reading a text has to pay, where it may get so many


@dataclass(slots=True)
class _Batch:
    """What a plan is made of: one row for every candidate."""

    candidates: Seq[Candidate]
    slots: Ints
    tokens: int  # of the step, without drafts
    verification: Floats  # seconds by draft tokens
    plain: float  # seconds of a step without drafts and prompts
    gains: Floats  # (n, positions)
    proposers: list[str | None]
    kinds: Ints
    is_drafted: Bools  # by the draft; else looked up
    prices: ProposerCosts
    weights: Floats  # of a token: more than 1 for those who are late
    probes: frozenset[int] = frozenset()  # rows
    matches: dict[int, int] = field(default_factory=dict)  # row → tokens, where it is looked up


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
        self._repeats = Repeats()

    def again(self, ids: Seq[int]) -> list[DraftPlan] | None:
        """The plans of a round that is not worth planning: the last ones. None: it has to be
        planned."""
        plans = self._repeats.again(ids)
        if plans is not None:
            self._now += 1
        return plans

    def plan(self, candidates: Seq[Candidate], *, other_tokens: int = 0) -> list[DraftPlan]:
        """One plan per candidate, in order. `other_tokens`: of prompts, in the same step."""
        if not candidates:
            return []
        self._now += 1
        num, ledger = len(candidates), self._ledger
        batch = self._batch = self._drafts(candidates, other_tokens)
        values = self._values(batch)
        self._charge_reading(batch, values)
        self._look_up(batch, values)
        prices = Prices(batch.prices.overhead, batch.prices.per_depth, batch.prices.per_token)
        allocation = Allocation(np.zeros(num, np.int64), 0.0, 0.0)
        if not ledger.is_held_back:
            allocation = allocate(
                batch.gains * values[:, None],
                batch.verification,
                prices,
                emitted=float(values.sum()),
                is_drafted=batch.is_drafted,
                pace=1.0,  # values are seconds
            )
        lengths = allocation.lengths
        self._price = allocation.price or self._price
        self._account(batch, lengths, allocation.price)
        self._roster.drafted(batch.slots, lengths == 0, self._now)
        self._probe(batch, lengths, prices)
        floors = allocation.price / np.maximum(values, _TINY_S)
        plans = self._plans(batch, lengths.tolist(), floors.tolist())
        self._repeats.follow(plans, self._rounds_to_probe(batch))
        return plans

    def observe(self, outcomes: Seq[Outcome], times: StepTimes) -> None:
        """What became of the last plan: one outcome for each of its candidates that ran."""
        batch = self._batch
        if batch is None:
            return
        if self._repeats.is_on:
            self._observe_again(batch, outcomes)
            return
        if not outcomes:
            return
        rows = {each.id: row for row, each in enumerate(batch.candidates)}
        drafted = [each for each in outcomes if each.proposer is not None and each.drafted > 0]
        # What was drafted by another than the plan says is counted as tokens alone.
        as_planned = [each for each in drafted if each.proposer == batch.proposers[rows[each.id]]]
        if as_planned:
            self._learn(batch, as_planned, [rows[each.id] for each in as_planned])
        more = self._learn_costs(batch, drafted, times) - float(batch.verification[0])
        weights = batch.weights
        accepted = sum([each.accepted * weights[rows[each.id]] for each in drafted])
        emitted = 1 + float(accepted) / float(weights.sum())
        self._ledger.settle(batch.plain, batch.plain + more, emitted)
        self._repeats.took(times.planning, times.seconds)

    def _observe_again(self, batch: _Batch, outcomes: Seq[Outcome]) -> None:
        """A round that was not planned: it is booked. Where texts are many, nothing else is learned
        of it: the planned ones say enough."""
        accepted = sum([each.accepted for each in outcomes])
        drafted = sum([each.drafted for each in outcomes])
        lengths = [each.drafted for each in outcomes if each.proposer == self._draft]
        at = min(drafted, len(batch.verification) - 1)
        seconds = batch.plain + float(batch.verification[at] - batch.verification[0])
        seconds += batch.prices.seconds(max(lengths, default=0), sum(lengths))
        self._ledger.settle(batch.plain, seconds, 1 + accepted / max(len(outcomes), 1))
        if drafted and len(batch.candidates) <= _FEW_TEXTS:
            batch.probes = frozenset()
            rows = {each.id: row for row, each in enumerate(batch.candidates)}
            # What is looked up now may follow a longer match than the planned one.
            known = [each for each in outcomes if each.drafted and each.proposer == self._draft]
            known = [each for each in known if each.id in rows]
            known = [each for each in known if batch.proposers[rows[each.id]] == self._draft]
            if known:
                self._learn(batch, known, [rows[each.id] for each in known])
        self._repeats.count(drafted, accepted)
        if drafted and self._ledger.is_held_back:
            self._repeats.end()

    def release(self, id: int) -> None:
        """The sequence is over. Harmless when it is unknown."""
        slot = self._roster.leave(id)
        if slot is not None and slot < self._posterior.frailties.means.shape[1]:
            self._posterior.frailties.clear(slot)

    def _drafts(self, candidates: Seq[Candidate], other_tokens: int) -> _Batch:
        """The batch with what the draft would give."""
        num, slots = len(candidates), self._roster.slots(candidates)
        rooms = [each.room for each in candidates]
        context = sum([each.context for each in candidates]) / num
        found = [lookup.length for each in candidates for lookup in each.lookups]
        width = max(self._max_k, min(max(found, default=0), self._max_lookup))
        tokens, gains = num + other_tokens, np.zeros((num, width))
        costs, kinds = ProposerCosts(), np.zeros(num, np.int64)
        if self._draft is not None:
            costs = self.costs.drafting(self._draft)
            kind = self._posterior.kind(self._draft, _DRAFT_HAZARD)
            proposer = self._posterior.proposer(self._draft, self._roster.size)
            every = self._posterior.gains(kind, proposer, slots, self._roster.bands[slots])
            gains[:, : self._max_k] = every[:, : self._max_k]
            kinds[:] = kind
        if min(rooms) < width:
            gains[np.arange(width) >= np.array(rooms)[:, None]] = 0.0
        verification = self.costs.verification(tokens, num * width, num, context)
        plain = float(verification[0])
        if other_tokens:
            plain = float(self.costs.verification(num, 0, num, context)[0])
        return _Batch(
            candidates,
            slots,
            tokens,
            verification,
            plain,
            gains,
            [self._draft] * num,
            kinds,
            np.full(num, self._draft is not None),
            costs,
            np.ones(num),
        )

    def _values(self, batch: _Batch) -> Floats:
        """Seconds that a token of each is worth: what it takes to get one, of late. That is less
        for those that get many in a round. What a step takes for prompts is not counted."""
        values = batch.plain / len(batch.candidates) * self._roster.seconds_per_token(batch.slots)
        for row, each in enumerate(batch.candidates):
            if each.lateness is not None and each.lateness > 1:
                batch.weights[row] = min(each.lateness, _MOST_WEIGHT)
        values *= np.where(self._roster.is_off[batch.slots], _DAMPED, 1.0)
        return values * batch.weights

    def _charge_reading(self, batch: _Batch, values: Floats) -> None:
        """A draft that has not read a text reads it first. What that takes comes off what it is
        expected to give, spread over the rounds that the text may still have."""
        behind = np.array([each.behind for each in batch.candidates])
        behind[behind <= _FEW_BEHIND] = 0
        if not behind.any():
            return
        own = batch.gains * values[:, None] - self._price - batch.prices.per_token
        worth = np.maximum(own, 0.0).sum(axis=1)
        left = np.array([min(each.left, _HORIZON) for each in batch.candidates])
        charge = batch.prices.catch_up * behind * (1 + batch.gains.sum(axis=1)) / left
        kept = 1 - charge / np.maximum(worth, _TINY_S)
        batch.gains *= np.maximum(kept, _TINY_S)[:, None]  # never 0: it may still be probed

    def _account(self, batch: _Batch, lengths: Ints, price: float) -> None:
        """What each is expected to get in this round, and its share of the seconds: those of its
        own draft tokens, and an equal part of the rest."""
        num, drafted = len(lengths), int(lengths.sum())
        if not drafted:
            self._roster.account(batch.slots, 1.0, 1.0)
            return
        depth = int(lengths[batch.is_drafted].max(initial=0))
        seconds = float(batch.verification[drafted] - batch.verification[0]) + batch.plain
        seconds += batch.prices.seconds(depth, int(lengths[batch.is_drafted].sum()))
        shares: Floats = (price * lengths + (seconds - price * drafted) / num).astype(np.float64)
        tokens = 1.0 + (batch.gains * (np.arange(batch.gains.shape[1]) < lengths[:, None])).sum(1)
        self._roster.account(batch.slots, shares * num / batch.plain, tokens)

    def _look_up(self, batch: _Batch, values: Floats) -> None:
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
        worth = np.maximum(gains * values[rows, None] - self._price, 0.0).sum(axis=1)
        own = batch.gains * values[:, None] - self._price - batch.prices.per_token
        shared = batch.prices.overhead + batch.prices.per_depth * (own > 0).sum(axis=1)
        best = np.maximum(own, 0.0).sum(axis=1) - shared / len(batch.candidates)
        best[~batch.is_drafted] = -1.0
        for at, (row, lookup) in enumerate(found):
            if worth[at] > best[row]:
                best[row], batch.gains[row] = worth[at], gains[at]
                batch.kinds[row], batch.proposers[row] = kinds[at], lookup.proposer
                batch.is_drafted[row], batch.matches[row] = False, lookup.match

    def _kind(self, candidate: Candidate, lookup: LookupDraft) -> int:
        """Matches of about the same length are counted together."""
        most, first = next(each for each in _MATCHES if lookup.match <= each[0])
        alike = candidate.likeness is not None and candidate.likeness > _LIKENESS
        name = f"{lookup.proposer} {most}{' alike' if alike else ''}"
        return self._posterior.kind(name, first)

    def _probe(self, batch: _Batch, lengths: Ints, prices: Prices) -> None:
        """One token for some without drafts."""
        num_drafted = int(lengths.sum())
        next_token = batch.verification[num_drafted : num_drafted + 2]
        if len(next_token) < 2 or next_token[1] - next_token[0] > self._ledger.for_probes:
            return
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
            num_drafted,
            prices,
            batch.prices.catch_up,
            bool(lengths[batch.is_drafted].any()),
        )
        self._ledger.pay_probes(seconds)
        batch.probes = frozenset(probes)

    def _rounds_to_probe(self, batch: _Batch) -> int:
        """Of a usual sequence, if there is money for it."""
        due = int(np.median(self._roster.due[batch.slots])) - self._now
        return due if due > 0 else self._ledger.rounds_to_probe(batch.plain)

    def _plans(self, batch: _Batch, lengths: list[int], floors: list[float]) -> list[DraftPlan]:
        none = Why.HELD_BACK if self._ledger.is_held_back else Why.LOSES
        plans = []
        for row, (each, k) in enumerate(zip(batch.candidates, lengths, strict=True)):
            proposer = batch.proposers[row]
            if k:
                match = batch.matches.get(row, 0)
                plans.append(DraftPlan(each.id, proposer, k, Why.PAYS, floors[row], match))
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
        # A step that reads prompts says little about one that does not.
        if times.verification > 0 and batch.tokens <= 2 * len(batch.candidates):
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
