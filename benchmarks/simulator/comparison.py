"""All policies on all cases."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from outdraft.engine.controller import Candidate, Controller, DraftPlan
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


class Ours(Controller):
    """Planning takes time, and so does looking tokens up."""

    planning = 0.0

    def __init__(self, told: RoundCosts, machine: str) -> None:
        super().__init__(told)
        self._of_a_plan, self._of_each = PLANNING.get(machine, _PLANNING_ELSEWHERE)

    def plan(self, candidates: Sequence[Candidate], *, other_tokens: int = 0) -> list[DraftPlan]:
        self.planning = self._of_a_plan + self._of_each * len(candidates)
        return super().plan(candidates, other_tokens=other_tokens)


def fixed_name(proposer: str, k: int) -> str:
    return f"{proposer} k={k}"


@dataclass(slots=True)
class Known:
    """What only a clairvoyant knows: the texts, and what the machine costs now."""

    truth: RoundCosts
    texts: dict[int, Text] = field(default_factory=dict)

    def acceptable(self, id: int, proposer: str, k: int) -> int:
        return self.texts[id].acceptable(proposer, k)


def policies(case: Case) -> dict[str, Callable[[Known], Policy]]:
    told = case.told
    every: dict[str, Callable[[Known], Policy]] = {OFF: lambda known: Fixed(HEAD, 0)}
    for proposer, k in FIXED:
        every[fixed_name(proposer, k)] = lambda known, p=proposer, k=k: Fixed(p, k)
    for (name, make), proposer in itertools.product(RULES.items(), ("head", "ngram")):
        every[f"{name}, {proposer}"] = lambda known, make=make, p=proposer: make(p, told)
    every[OURS] = lambda known: Ours(told, case.machine)
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
