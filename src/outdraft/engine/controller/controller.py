"""The controller: says what the draft should write in a round and which drafts are verified, and
learns from what became of them.

How it decides is in `native/rounds.h`, in one call each; here are names and ids, which sequence
has which slot, the costs as corrected, and the ledger.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from ctypes import byref
from math import log2

import numpy as np

from outdraft.engine.confidence import Trust
from outdraft.engine.controller.ledger import Ledger
from outdraft.engine.controller.live_costs import LiveCosts
from outdraft.engine.controller.words import (
    Candidate,
    DraftPlan,
    LookupDraft,
    Outcome,
    StepTimes,
    Why,
    Wish,
)
from outdraft.engine.native.rounds import BANDS as NUM_BANDS
from outdraft.engine.native.rounds import (
    LOOKUPS,
    POSITIONS,
    PROPOSERS,
    CCandidate,
    CController,
    CKind,
    COutcome,
    CPlan,
    CPrices,
    CRound,
    CSettled,
    CText,
    CWish,
    grown,
    rounds_library,
)
from outdraft.step_costs import RoundCosts

BANDS = (0.0, 0.4, 0.8, 1.1)  # temperatures up to each; the last band is above all
_DRAFT_HAZARD = 0.4  # of a draft's tokens, before anything was seen
# Matches up to so many tokens, and the hazard of what follows them, before anything was seen.
_MATCHES = ((2, 0.6), (4, 0.45), (8, 0.25), (10**9, 0.12))
_LIKENESS = 0.3  # above it, a prompt comes again often: its matches are counted apart
# As numbered in rounds.h.
_WHY = (Why.PAYS, Why.PROBE, Why.LOSES, Why.NO_ROOM, Why.NO_PROPOSER, Why.HOLDS_UP)
_FAR = (1 << 31) - 1
_MOST_RESTED = 3  # rounds


def band_of(temperature: float) -> int:
    return bisect_left(BANDS, temperature)


class Controller:
    """Chooses proposer and draft length of every sequence in every round.

    Deterministic: the same costs, candidates, outcomes and times give the same plans. Proposers
    that `costs` has are drafts, which are asked after planning; all others are lookups.
    """

    def __init__(self, costs: RoundCosts, *, max_k: int = 8, max_lookup: int = 16) -> None:
        """`max_k`: of drafts; `max_lookup`: of lookups, whose tokens cost nothing to find."""
        assert max(max_k, max_lookup) <= POSITIONS
        assert len(BANDS) + 1 == NUM_BANDS
        self._library = rounds_library()
        self.costs = LiveCosts(costs)
        self._ledgers: dict[int, Ledger] = {}  # by about how many texts run
        self._proposers: dict[str, int] = {}
        self._kinds: dict[tuple[str, int, bool], int] = {}
        self._texts: dict[int, int] = {}  # id → slot
        self._free: list[int] = []
        self._slots, self._of_kinds = (CText * 8)(), (CKind * 8)()
        self._rows, self._wishes, self._plans = (CCandidate * 8)(), (CWish * 8)(), (CPlan * 8)()
        self._candidates: Seq[Candidate] = ()
        # Of the last plan: its texts, whether nobody got anything, rounds since then.
        self._ids: list[int] = []
        self._is_idle, self._rested = False, 0
        self._outcomes, self._rounds = (COutcome * 8)(), (CRound * 8)()
        self._settled, self._memory = CSettled(), np.empty(0)
        self._planned: dict[int, int] = {}  # id → row, in the last round
        self._native = CController(
            per_sequence=costs.per_sequence, per_read=costs.per_read,
            per_row_read=costs.per_row_read, shortest=costs.context,
            draft=-1, max_k=max_k, max_lookup=max_lookup,
        )  # fmt: skip
        self._draft = next(iter(costs.proposers), None)
        if self._draft is not None:
            self._native.draft = self._number(self._draft)
            key = (self._draft, 0, False)
            self._native.draft_kind = self._kind(key, _DRAFT_HAZARD, is_graded=True)

    def may_rest(self, ids: Seq[int]) -> bool:
        """Whether the next round, of these texts, needs no plan: drafts are held back, or
        nothing was drafted for the same texts. What may come up can wait for a few rounds."""
        if self._rested >= _MOST_RESTED:
            return False
        return self._ledger(len(ids)).is_held_back or (self._is_idle and ids == self._ids)

    def rest(self) -> None:
        """A round without a plan, in which nobody gets drafts."""
        self._rested += 1
        self._native.now += 1
        plain = self._native.plain
        self._ledger(self._native.num).settle(plain, plain, 1.0)

    def wish(self, candidates: Seq[Candidate], *, other_tokens: int = 0) -> list[Wish]:
        """What the draft should write for each candidate, in order. `other_tokens`: of prompts, in
        the same step. `plan` follows, of the same candidates."""
        self._candidates, self._rested = candidates, 0
        if not candidates:
            return []
        num, native = len(candidates), self._native
        if num > len(self._rows):
            self._rows, self._plans = grown(self._rows, num), grown(self._plans, num)
            self._wishes = grown(self._wishes, num)
        for row, each in zip(self._rows, candidates, strict=False):
            self._describe(row, each)
        self._point(num, other_tokens)
        ledger = self._ledger(num)
        native.is_held_back, native.money = ledger.is_held_back, ledger.for_probes
        native.now += 1
        self._library.wish_drafts(byref(native), self._rows, num, other_tokens, self._wishes)
        return [
            Wish(each.id, own.k, Trust(tuple(own.chances), own.floor)) if own.k else Wish(each.id)
            for each, own in zip(candidates, self._wishes, strict=False)
        ]

    def plan(self, drafted: Mapping[int, Seq[int]]) -> list[DraftPlan]:
        """What each candidate gets verified. `drafted`: by id, the grades of the tokens that the
        draft wrote for it."""
        if not self._candidates:
            return []
        native, candidates = self._native, self._candidates
        for row, each in zip(self._rows, candidates, strict=False):
            grades = drafted.get(each.id, ())
            row.num_drafted = len(grades)
            row.grades[: len(grades)] = grades
        ledger = self._ledger(native.num)
        self._library.plan_round(byref(native), self._rows, self._plans)
        ledger.pay_probes(ledger.for_probes - native.money)
        self._planned = {each.id: row for row, each in enumerate(candidates)}
        plans = self._answer(candidates)
        self._ids = list(self._planned)
        self._is_idle = not drafted and not any(each.k for each in plans)
        return plans

    def observe(self, outcomes: Seq[Outcome], times: StepTimes) -> None:
        """What became of the last plan: one outcome for each of its candidates that ran."""
        if not self._planned or not outcomes:
            return
        num, native, settled = len(outcomes), self._native, self._settled
        if num > len(self._outcomes):
            self._outcomes, self._rounds = grown(self._outcomes, num), grown(self._rounds, num)
        for row, each in zip(self._outcomes, outcomes, strict=False):
            row.plan, row.drafted, row.accepted = (
                self._planned[each.id],
                each.drafted if each.proposer is not None else 0,
                each.accepted,
            )
            row.proposer = self._number(each.proposer) if each.proposer is not None else -1
        self._library.learn_round(
            byref(native),
            self._plans,
            self._outcomes,
            num,
            times.verification,
            self._rounds,
            byref(settled),
        )
        # A step that reads prompts says little about one that does not.
        if times.verification > 0 and native.tokens <= 2 * native.num:
            self.costs.observe(settled.tokens, settled.verification, times.verification)
        if self._draft is not None and settled.drafts and settled.drafting > 0:
            drafting = times.drafting.get(self._draft, 0.0)
            if drafting > 0:
                self.costs.observe_drafting(self._draft, settled.drafting, drafting)
        more = settled.verification + settled.drafting - native.without
        self._ledger(native.num).settle(
            native.plain, native.plain + more, settled.emitted, catch_up=settled.catch_up
        )
        self._planned = {}

    def release(self, id: int) -> None:
        """The sequence is over. Harmless when it is unknown."""
        slot = self._texts.pop(id, None)
        if slot is not None:
            self._free.append(slot)

    def _ledger(self, num: int) -> Ledger:
        """Of rounds with about so many texts, to the nearest power of two: what drafts lose where
        many run says little about few."""
        return self._ledgers.setdefault(round(log2(max(num, 1))), Ledger())

    def _describe(self, row: CCandidate, candidate: Candidate) -> None:
        row.text = self._texts.get(candidate.id, -1)
        if row.text < 0:
            row.text = self._enter(candidate)
        row.context, row.room, row.behind = candidate.context, candidate.room, candidate.behind
        row.left = min(candidate.left, _FAR)
        row.lateness = candidate.lateness or 0.0
        row.num_lookups = len(candidate.lookups)
        assert row.num_lookups <= LOOKUPS
        for own, lookup in zip(row.lookups, candidate.lookups, strict=False):
            own.proposer = self._number(lookup.proposer)
            own.kind = self._kind_of(candidate, lookup)
            own.length = lookup.length

    def _enter(self, candidate: Candidate) -> int:
        slot = self._free.pop() if self._free else len(self._texts)
        self._slots = grown(self._slots, slot + 1)
        self._texts[candidate.id] = slot
        self._library.text_begin(byref(self._slots[slot]), band_of(candidate.temperature))
        return slot

    def _point(self, num: int, other_tokens: int) -> None:
        """Sets all that may have moved or changed since the last round."""
        native = self._native
        native.texts, native.kinds = self._slots, self._of_kinds
        native.num_kinds = len(self._kinds)
        self.costs.grow(num + other_tokens + num * POSITIONS)
        native.base, native.factors = self.costs.base.ctypes.data, self.costs.factors.ctypes.data
        if self._draft is not None:
            costs = self.costs.drafting(self._draft)
            native.prices = CPrices(
                costs.overhead, costs.per_depth, costs.per_token, costs.catch_up
            )
        needed = self._library.memory_of_round(byref(native), self._rows, num)
        if needed > len(self._memory):
            self._memory = np.empty(2 * needed)
            native.memory = self._memory.ctypes.data

    def _answer(self, candidates: Seq[Candidate]) -> list[DraftPlan]:
        names, plans = list(self._proposers), []
        is_held_back = self._ledger(len(candidates)).is_held_back
        for each, own in zip(candidates, self._plans, strict=False):
            why = _WHY[own.why]
            if own.k:
                plans.append(DraftPlan(each.id, names[own.proposer], own.k, why))
            else:
                held = is_held_back and why is Why.LOSES
                plans.append(DraftPlan(each.id, None, 0, Why.HELD_BACK if held else why))
        return plans

    def _number(self, proposer: str) -> int:
        number = self._proposers.setdefault(proposer, len(self._proposers))
        assert number < PROPOSERS
        return number

    def _kind_of(self, candidate: Candidate, lookup: LookupDraft) -> int:
        """Matches of about the same length are counted together."""
        most, first = next(each for each in _MATCHES if lookup.match <= each[0])
        alike = candidate.likeness is not None and candidate.likeness > _LIKENESS
        return self._kind((lookup.proposer, most, alike), first)

    def _kind(self, key: tuple[str, int, bool], first: float, *, is_graded: bool = False) -> int:
        number = self._kinds.get(key)
        if number is None:
            number = self._kinds[key] = len(self._kinds)
            self._of_kinds = grown(self._of_kinds, number + 1)
            self._library.kind_begin(byref(self._of_kinds[number]), first, is_graded)
        return number
