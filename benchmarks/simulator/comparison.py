"""All policies on all cases."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from outdraft.engine.controller import (
    Candidate,
    Controller,
    DraftPlan,
    Outcome,
    StepTimes,
    Why,
    Wish,
)
from outdraft.step_costs import RoundCosts

from .cases import Case
from .policies import (
    HEAD,
    ByBatchSize,
    Clairvoyant,
    Fixed,
    MovingAverage,
    OneForAll,
    UpAndDown,
)
from .server import Policy, Run, simulate
from .texts import Text

# Seconds that a plan takes, and for each text. On a CPU that computes the model too, its code comes
# from memory each time: as seen in the engine. Elsewhere as in a loop of plans alone.
PLANNING = {"cpu": (0.0002, 0.000012)}
_PLANNING_ELSEWHERE = (0.00002, 0.000004)
Write = Callable[[int, int], list[int]]  # of a draft for a text, so long: its grades
OFF = "off"
OURS = "ours"
FIXED = (
    *(("head", k) for k in (1, 2, 3, 4, 5, 6, 8)),
    *(("ngram", k) for k in (2, 4, 8, 16)),
)
RULES: dict[str, Callable[[str, RoundCosts], Policy]] = {
    "table by batch size": lambda proposer, told: ByBatchSize(proposer, 0),
    "up and down": lambda proposer, told: UpAndDown(proposer),
    "moving average": lambda proposer, told: MovingAverage(proposer),
    "one k for the batch": lambda proposer, told: OneForAll(proposer, told),
}


@dataclass(slots=True)
class Compared:
    """Runs of one case by policy, one for each seed."""

    case: Case
    runs: dict[str, list[Run]] = field(default_factory=dict)

    def throughput(self, policy: str) -> float:
        runs = self.runs[policy]
        return sum(run.tokens for run in runs) / sum(run.seconds for run in runs)

    def over(self, policy: str, other: str) -> float:
        return self.throughput(policy) / self.throughput(other)

    def best_of(self, rule: str) -> str:
        """A rule with the proposer that suits it best here."""
        return max((f"{rule}, {each}" for each in ("head", "ngram")), key=self.throughput)

    @property
    def fixed(self) -> list[str]:
        return [OFF, *(fixed_name(*each) for each in FIXED)]

    @property
    def best_fixed(self) -> str:
        return max(self.fixed, key=self.throughput)


class Ours:
    """The engine's controller, and a head that says how sure it is. Planning takes time, and so
    does looking tokens up."""

    planning = 0.0

    def __init__(self, told: RoundCosts, machine: str, write: Write) -> None:
        self._controller, self._write = Controller(told), write
        self._of_a_plan, self._of_each = PLANNING.get(machine, _PLANNING_ELSEWHERE)
        self.written: dict[int, int] = {}

    def plan(self, candidates: Sequence[Candidate]) -> list[DraftPlan]:
        if self._controller.may_rest([each.id for each in candidates]):
            self._controller.rest()
            self.planning, self.written = 0.0, {}
            return [DraftPlan(each.id, None, 0, Why.HELD_BACK) for each in candidates]
        self.planning = self._of_a_plan + self._of_each * len(candidates)
        wishes = [each for each in self._controller.wish(candidates) if each.k]
        drafted = {each.id: self._write(each.id, each.k) for each in wishes}
        depth = max((_wanted(each, drafted[each.id]) for each in wishes), default=0)
        drafted = {id: grades[:depth] for id, grades in drafted.items()}
        self.written = {id: len(grades) for id, grades in drafted.items()}
        return self._controller.plan(drafted)

    def observe(self, outcomes: Sequence[Outcome], times: StepTimes) -> None:
        self._controller.observe(outcomes, times)

    def release(self, id: int) -> None:
        self._controller.release(id)


def _wanted(wish: Wish, grades: Sequence[int]) -> int:
    """Tokens until the draft is too unsure. All are drafted together, until none wants more."""
    assert wish.trust is not None
    chances = itertools.accumulate((wish.trust.chances[each] for each in grades), operator.mul)
    return 1 + sum(1 for chance in list(chances)[:-1] if chance >= wish.trust.floor)


def fixed_name(proposer: str, k: int) -> str:
    return f"{proposer} k={k}"


@dataclass(slots=True)
class Known:
    """What only a clairvoyant knows: the texts, and what the machine costs now."""

    truth: RoundCosts
    texts: dict[int, Text] = field(default_factory=dict)

    def acceptable(self, id: int, proposer: str, k: int) -> int:
        return self.texts[id].acceptable(proposer, k)

    def written(self, id: int, k: int) -> list[int]:
        return self.texts[id].written(k)


def policies(case: Case) -> dict[str, Callable[[Known], Policy]]:
    told = case.told
    every: dict[str, Callable[[Known], Policy]] = {OFF: lambda known: Fixed(HEAD, 0)}
    for proposer, k in FIXED:
        every[fixed_name(proposer, k)] = lambda known, p=proposer, k=k: Fixed(p, k)
    for (name, make), proposer in itertools.product(RULES.items(), ("head", "ngram")):
        every[f"{name}, {proposer}"] = lambda known, make=make, p=proposer: make(p, told)
    every[OURS] = lambda known: Ours(told, case.machine, known.written)
    every["clairvoyant"] = lambda known: Clairvoyant(lambda: known.truth, known.acceptable)
    return every


def run_case(case: Case, policy: str, seed: int) -> Run:
    known = Known(case.truth(0.0))

    def remembered() -> Iterator[Text]:
        for text in case.texts(seed):
            known.texts[text.id] = text
            yield text

    def truth(done: float) -> RoundCosts:
        known.truth = case.truth(done)
        return known.truth

    make = policies(case)[policy]
    return simulate(make(known), remembered(), truth, case.at_a_time, case.num_tokens, seed)
