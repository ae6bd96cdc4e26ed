"""The controller: plans the drafts of a round, learns from what became of them."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import numpy as np

from outdraft.engine.controller.allocation import Prices, allocate
from outdraft.engine.controller.posterior import Posterior, band_of
from outdraft.engine.controller.words import (
    Candidate,
    DraftPlan,
    LookupDraft,
    Outcome,
    StepTimes,
    Why,
)
from outdraft.goodput import survival
from outdraft.step_costs import ProposerCosts, RoundCosts


class Controller:
    """Chooses proposer and draft length of every sequence in every round.

    Deterministic: the same costs, candidates, outcomes and times give the same plans. Proposers
    that `costs` has are drafts, which are asked after planning; all others are lookups.
    """

    def __init__(self, costs: RoundCosts, *, max_k: int = 8, max_lookup: int = 16) -> None:
        """`max_k`: of drafts; `max_lookup`: of lookups, whose tokens cost nothing to find."""
        self.costs = costs
        self._max_k, self._max_lookup = max_k, max_lookup
        self._width = max(max_k, max_lookup)
        self._posteriors: dict[str, Posterior] = {}
        self._temperatures: dict[int, float] = {}

    def plan(self, candidates: Seq[Candidate], *, other_tokens: int = 0) -> list[DraftPlan]:
        """One plan per candidate, in order. `other_tokens`: of prompts, in the same step."""
        if not candidates:
            return []
        num = len(candidates)
        draft = next(iter(self.costs.proposers), None)
        gains = np.zeros((num, self._width))
        proposers: list[str | None] = []
        for at, each in enumerate(candidates):
            self._temperatures[each.id] = each.temperature
            band = band_of(each.temperature)
            options: list[tuple[float, str, np.ndarray]] = []
            if draft is not None and each.room:
                own = survival(self._posterior(draft).rates(each.id, band))
                own[min(each.room, self._max_k) :] = 0
                options.append((float(own.sum()), draft, own))
            for lookup in each.lookups:
                length = min(lookup.length, each.room, self._max_lookup)
                if length:
                    rates = self._posterior(_kind(lookup)).rates(each.id, band)
                    own = survival(rates)
                    own[length:] = 0
                    options.append((float(own.sum()), lookup.proposer, own))
            best = max(options, key=lambda option: option[0], default=None)
            proposers.append(best[1] if best else None)
            if best:
                gains[at] = best[2]
        context = sum(each.context for each in candidates) / num
        verification = np.array(
            [
                self.costs.verification(num + other_tokens + more, num, context)
                for more in range(num * self._width + 1)
            ]
        )
        prices = self.costs.proposers.get(draft or "", ProposerCosts())
        allocation = allocate(
            gains,
            verification,
            Prices(prices.overhead, prices.per_depth, prices.per_token),
            emitted=num,
            is_drafted=np.array([each == draft for each in proposers]),
        )
        plans = []
        for each, proposer, k in zip(
            candidates, proposers, allocation.lengths.tolist(), strict=True
        ):
            if k:
                plans.append(DraftPlan(each.id, proposer, k, Why.PAYS, allocation.price))
            else:
                why = Why.LOSES if proposer else Why.NO_PROPOSER if each.room else Why.NO_ROOM
                plans.append(DraftPlan(each.id, None, 0, why))
        return plans

    def observe(self, outcomes: Seq[Outcome], times: StepTimes) -> None:
        """What became of the last plan: one outcome for each of its candidates that ran."""
        for each in outcomes:
            if each.proposer is not None and each.drafted:
                band = band_of(self._temperatures[each.id])
                posterior = self._posterior(each.proposer)
                posterior.observe(each.id, band, each.drafted, each.accepted)

    def release(self, id: int) -> None:
        """The sequence is over. Harmless when it is unknown."""
        self._temperatures.pop(id, None)
        for posterior in self._posteriors.values():
            posterior.release(id)

    def _posterior(self, kind: str) -> Posterior:
        return self._posteriors.setdefault(kind, Posterior(self._width))


def _kind(lookup: LookupDraft) -> str:
    return lookup.proposer
