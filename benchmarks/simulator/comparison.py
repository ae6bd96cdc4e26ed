"""All policies on all cases."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from outdraft.engine.controller import Controller
from outdraft.step_costs import RoundCosts

from .cases import Case
from .machines import MACHINES
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

    @property
    def fixed(self) -> list[str]:
        return [OFF, *(fixed_name(*each) for each in FIXED)]

    @property
    def best_fixed(self) -> str:
        return max(self.fixed, key=self.throughput)


def fixed_name(proposer: str, k: int) -> str:
    return f"{proposer} k={k}"


def policies(case: Case) -> dict[str, Callable[[dict[int, Text]], Policy]]:
    told, truth = case.bias.told(MACHINES[case.machine]), MACHINES[case.machine]
    every: dict[str, Callable[[dict[int, Text]], Policy]] = {OFF: lambda texts: Fixed(HEAD, 0)}
    for proposer, k in FIXED:
        every[fixed_name(proposer, k)] = lambda texts, p=proposer, k=k: Fixed(p, k)
    for (name, make), proposer in itertools.product(RULES.items(), ("head", "ngram")):
        every[f"{name}, {proposer}"] = lambda texts, make=make, p=proposer: make(p, told)
    every[OURS] = lambda texts: Controller(told)
    every["clairvoyant"] = lambda texts: Clairvoyant(
        truth, lambda id, proposer, k: texts[id].acceptable(proposer, k)
    )
    return every


def run_case(case: Case, policy: str, seed: int) -> Run:
    known: dict[int, Text] = {}

    def remembered() -> Iterator[Text]:
        for text in case.texts(seed):
            known[text.id] = text
            yield text

    return simulate(
        policies(case)[policy](known),
        remembered(),
        MACHINES[case.machine],
        case.at_a_time,
        case.num_tokens,
        seed,
    )
