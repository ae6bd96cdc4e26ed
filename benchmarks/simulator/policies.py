"""What others do: fixed lengths, tables, moving averages, one k for the whole batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from outdraft.engine.controller import Candidate, DraftPlan, Outcome, StepTimes, Why
from outdraft.engine.controller.allocation import allocate
from outdraft.goodput import survival
from outdraft.step_costs import RoundCosts

HEAD = "head"


def planned(candidate: Candidate, proposer: str, k: int) -> DraftPlan:
    """At most what there is room for, and what a lookup found."""
    k = min(k, candidate.room)
    if proposer != HEAD:
        k = min(k, max((each.length for each in candidate.lookups), default=0))
    return DraftPlan(candidate.id, proposer if k > 0 else None, max(k, 0), Why.PAYS)


class Fixed:
    """Always the same; k = 0 is off."""

    planning = 0.0
    written = None

    def __init__(self, proposer: str, k: int) -> None:
        self._proposer, self._k = proposer, k

    def plan(self, candidates: Sequence[Candidate]) -> list[DraftPlan]:
        return [planned(each, self._proposer, self._k) for each in candidates]

    def observe(self, outcomes: Sequence[Outcome], times: StepTimes) -> None:
        pass

    def release(self, id: int) -> None:
        pass


class ByBatchSize(Fixed):
    """A table such as operators write: k by the number of running texts."""

    TABLE = ((4, 5), (16, 3), (32, 1), (10**9, 0))

    def plan(self, candidates: Sequence[Candidate]) -> list[DraftPlan]:
        k = next(k for most, k in self.TABLE if len(candidates) <= most)
        return [planned(each, self._proposer, k) for each in candidates]


class UpAndDown(Fixed):
    """Two more after a round in which all was accepted, else one less: what transformers does for
    assisted generation, here for each text."""

    def __init__(self, proposer: str, most: int = 8) -> None:
        super().__init__(proposer, 5)
        self._most, self._lengths = most, dict[int, int]()

    def plan(self, candidates: Sequence[Candidate]) -> list[DraftPlan]:
        return [planned(each, self._proposer, self._lengths.get(each.id, 5)) for each in candidates]

    def observe(self, outcomes: Sequence[Outcome], times: StepTimes) -> None:
        for each in outcomes:
            if each.drafted:
                k = self._lengths.get(each.id, 5)
                k = k + 2 if each.accepted == each.drafted else k - 1
                self._lengths[each.id] = min(max(k, 1), self._most)

    def release(self, id: int) -> None:
        self._lengths.pop(id, None)


class MovingAverage(Fixed):
    """One more than a text's accepted tokens of late, as adaptive engines do; one at least."""

    def __init__(self, proposer: str, most: int = 8, share: float = 0.2) -> None:
        super().__init__(proposer, 0)
        self._most, self._share, self._means = most, share, dict[int, float]()

    def plan(self, candidates: Sequence[Candidate]) -> list[DraftPlan]:
        lengths = (min(round(self._means.get(each.id, 3.0)) + 1, self._most) for each in candidates)
        return [
            planned(each, self._proposer, k) for each, k in zip(candidates, lengths, strict=True)
        ]

    def observe(self, outcomes: Sequence[Outcome], times: StepTimes) -> None:
        for each in outcomes:
            if each.drafted:
                mean = self._means.get(each.id, 3.0)
                self._means[each.id] = mean + self._share * (each.accepted - mean)

    def release(self, id: int) -> None:
        self._means.pop(id, None)


class OneForAll(Fixed):
    """The goodput rule with one k for the whole batch: a moving average of the acceptance rate of
    all, a table of costs, the k with the most expected tokens per second. Where that is 0 it tries
    k = 1 in one of 100 rounds."""

    def __init__(self, proposer: str, costs: RoundCosts, most: int = 8) -> None:
        super().__init__(proposer, 0)
        self._costs, self._most = costs, most
        self._rate, self._rounds = 0.7, 0

    def plan(self, candidates: Sequence[Candidate]) -> list[DraftPlan]:
        self._rounds += 1
        num = len(candidates)
        context = sum(each.context for each in candidates) / num
        drafting = sum(bool(each.lookups) for each in candidates) if self._proposer != HEAD else num

        def goodput(k: int) -> float:
            accepted = survival(np.full(k, self._rate)).sum()
            seconds = self._costs.verification(num + drafting * k, num, context)
            seconds += self._costs.drafting(self._proposer, k, num * k)
            return float((num + drafting * accepted) / seconds)

        best = max(range(self._most + 1), key=goodput)
        k = best or int(self._rounds % 100 == 0)
        return [planned(each, self._proposer, k) for each in candidates]

    def observe(self, outcomes: Sequence[Outcome], times: StepTimes) -> None:
        tried = sum(min(each.accepted + 1, each.drafted) for each in outcomes)
        if tried:
            rate = sum(each.accepted for each in outcomes) / tried
            self._rate += 0.1 * (rate - self._rate)


class Clairvoyant(Fixed):
    """Knows which tokens will be accepted, and the true costs: nobody does better by much."""

    def __init__(
        self, truth: Callable[[], RoundCosts], acceptable: Callable[[int, str, int], int]
    ) -> None:
        super().__init__(HEAD, 0)
        self._truth, self._acceptable = truth, acceptable

    def plan(self, candidates: Sequence[Candidate]) -> list[DraftPlan]:
        num, costs = len(candidates), self._truth()
        gains, is_drafted, names = np.zeros((num, 16)), np.ones(num, bool), [HEAD] * num
        for at, each in enumerate(candidates):
            right = self._acceptable(each.id, HEAD, min(8, each.room))
            for found in each.lookups:
                copied = self._acceptable(each.id, found.proposer, min(found.length, each.room))
                if copied >= right:
                    right, is_drafted[at], names[at] = copied, False, found.proposer
            gains[at, :right] = 1.0
        context = sum(each.context for each in candidates) / num
        # More than all that will be accepted is never asked for.
        most = [costs.verification(num + t, num, context) for t in range(int(gains.sum()) + 1)]
        verification = np.pad(np.array(most), (0, gains.size + 1 - len(most)), mode="edge")
        lengths = allocate(gains, verification, costs.proposers[HEAD], is_drafted=is_drafted)
        return [
            planned(each, name, int(k))
            for each, name, k in zip(candidates, names, lengths, strict=True)
        ]
