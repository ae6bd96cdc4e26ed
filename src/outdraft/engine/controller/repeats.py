"""Plans that are repeated for some rounds: where nothing changes, planning does not pay."""

from __future__ import annotations

from collections.abc import Sequence as Seq

from outdraft.engine.controller.words import DraftPlan, Why

_MOST_RESTING = 4  # rounds, while nobody gets drafts
_MOST_DRAFTING = 3
_PATIENCE = 2  # plans that have to be alike before drafts are repeated


class Repeats:
    """Whether the last plans stand for another round, and of which sequences.

    They stand while plan after plan is much the same: a round longer each time where nobody gets
    drafts, a few rounds where drafts are made. Lookups and probes are planned anew in every round,
    because what they find is another thing each time.
    """

    def __init__(self) -> None:
        self._plans: dict[int, DraftPlan] = {}
        self._alike = 0  # plans in a row
        self._left = 0  # rounds
        self._is_resting = False
        self.is_on = False  # in this round

    def again(self, ids: Seq[int]) -> list[DraftPlan] | None:
        """The plans of this round where they stand; None: there have to be new ones."""
        self.is_on = False
        if not self._left:
            return None
        plans = [self._plans.get(each) for each in ids]
        known = [each for each in plans if each is not None]
        # Where nobody gets drafts, a few that are new can wait.
        if len(known) < len(ids) and not (self._is_resting and 2 * len(known) > len(ids)):
            self._left = 0
            return None
        self._left -= 1
        self.is_on = True
        return [
            DraftPlan(id, None, 0, Why.LOSES) if plan is None else plan
            for id, plan in zip(ids, plans, strict=True)
        ]

    def follow(self, plans: Seq[DraftPlan], draft: str | None, due: int) -> None:
        """New plans were made. `draft`: the proposer that does not look up; `due`: rounds until a
        usual sequence without drafts is to be probed."""
        resting = not any(each.k for each in plans)
        before = self._plans
        self._plans = {each.id: each for each in plans}
        changes = varied = False
        for each in plans:
            if each.k and (each.why is Why.PROBE or each.proposer != draft):
                varied = True
            old = before.get(each.id)
            if old is None or old.proposer != each.proposer or abs(old.k - each.k) > 1:
                changes = True
        if varied or resting is not self._is_resting or (changes and not resting):
            self._alike = 0
        else:
            self._alike += 1
        self._is_resting = resting
        if resting:
            self._left = max(min(self._alike, _MOST_RESTING, due - 1), 0)
        else:
            self._left = 0 if varied else min(self._alike // _PATIENCE, _MOST_DRAFTING)

    def end(self) -> None:
        """A round went unlike the ones before it: the next is planned."""
        self._left = self._alike = 0
