"""Plans that stand for some rounds: planning takes time, and little changes in between."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from math import ceil

from outdraft.engine.controller.words import DraftPlan, Why

_SHARE = 0.015  # of the time, for planning
_MOST_ROUNDS = 8  # that plans stand, the round they are made for included
_MEMORY = 0.9  # of what planning and rounds take


_NONE = DraftPlan(-1, None, 0, Why.LOSES)


class Repeats:
    """Whether the last plans stand for another round, and of which sequences.

    They stand for as many rounds as it takes for planning to be 1.5 % of the time; twice as many
    where nobody gets drafts, but not over the time of a probe.
    """

    def __init__(self) -> None:
        self._plans: dict[int, DraftPlan] = {}
        self._num_planned = 0
        self._usual = _NONE  # the plan of a sequence that is new
        self._left = 0  # rounds
        self._is_resting = False
        self._failed = 0  # rounds in a row in which no draft was right
        self._planning, self._round = 0.0, 0.0  # seconds, of late
        self.is_on = False  # in this round

    def again(self, ids: Seq[int]) -> list[DraftPlan] | None:
        """The plans of this round where they stand; None: there have to be new ones."""
        self.is_on = False
        if not self._left:
            return None
        plans = [self._plans.get(each) for each in ids]
        known = [each for each in plans if each is not None]
        if 2 * len(known) <= len(ids) or 2 * len(ids) < self._num_planned:
            self._left = 0
            return None
        self._left -= 1
        self.is_on = True
        if len(known) == len(ids):
            return known
        # A few that are new do not wait where all get drafts.
        usual = self._usual
        for id, plan in zip(ids, plans, strict=True):
            if plan is None:
                self._plans[id] = DraftPlan(id, usual.proposer, usual.k, usual.why)
        return [self._plans[id] for id in ids]

    def follow(self, plans: Seq[DraftPlan], due: int) -> None:
        """New plans were made. `due`: rounds until a usual sequence without drafts is probed."""
        probes = [each for each in plans if each.why is Why.PROBE]
        self._plans, self._num_planned = {each.id: each for each in plans}, len(plans)
        for each in probes:  # once
            self._plans[each.id] = DraftPlan(each.id, None, 0, Why.LOSES)
        self._is_resting = not any(each.k for each in self._plans.values())
        self._usual = _NONE
        if plans and all(each.k and not each.match for each in self._plans.values()):
            self._usual = sorted(self._plans.values(), key=lambda each: each.k)[len(plans) // 2]
        rounds = ceil(self._planning / (_SHARE * self._round)) if self._round else 1
        if self._is_resting:
            rounds = min(2 * rounds, max(due, 1))
        self._left = max(min(rounds, _MOST_ROUNDS), 1) - 1
        self._failed = 0

    def took(self, planning: float, seconds: float) -> None:
        """What a round took that was planned, and the planning of it."""
        if not self._round:
            self._planning, self._round = planning, seconds
        self._planning += (1 - _MEMORY) * (planning - self._planning)
        self._round += (1 - _MEMORY) * (seconds - self._round)

    def count(self, drafted: int, accepted: int) -> None:
        """A round was not planned. After two in which no draft was right, the next one is."""
        if drafted:
            self._failed = 0 if accepted else self._failed + 1
        if self._failed > 1:
            self.end()

    def end(self) -> None:
        self._left = 0
