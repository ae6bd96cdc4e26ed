"""What rounds cost, as `tune` measured it, or our server at its start. Pure.

At each load, tune's speedup and acceptance say what a round costs in plain steps, and so do other
draft lengths of the same proposer. What verifying takes of it is known for every load, where steps
were timed by their tokens. It is flat for few tokens and steep for many, so that no line between
two loads would do; the rest is interpolated.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from outdraft.goodput import round_cost_from_speedup
from outdraft.step_costs import DraftingCosts, Line, StepCosts, verification_costs
from outdraft.tune.arm import proposer_name
from outdraft.tune.results import ArmResult, Results

_TUNED = (
    "rounds are taken to cost what they did when `outdraft tune` measured them, on this machine "
    "and with contexts as long as then"
)
_MEASURED_AT_START = (
    "plain steps are taken to cost what the server measured when it started, or more by as much as "
    "steps with drafts do now: the interval holds both"
)
_WITHOUT_INTERVAL = 0.1  # standard error of a speedup that tune measured without an interval
_NORMAL = 1.959964  # tune's interval, taken as that of a normal distribution
_BEYOND = 2.0  # times the highest load that was measured: no further, and as far below the lowest


@dataclass(frozen=True, slots=True)
class LoadCosts:
    """What rounds cost with so many texts at a time."""

    running: float
    rounds: Mapping[float, float]  # mean draft length → plain steps of a round
    error: float  # standard error of the logarithm of the speedup
    share_drafted: float = 1.0  # of the steps, when the speedup was measured
    plain_s: float | None = None  # seconds of a plain step


@dataclass(frozen=True, slots=True)
class Costs:
    loads: tuple[LoadCosts, ...]
    assumes: str = _TUNED
    table: StepCosts | None = None  # of steps by tokens, where it is known
    timed: StepCosts | None = None  # by the server at its start, with which live steps are compared
    method: str | None = None  # with which rounds were measured
    _plain: Line | None = field(init=False, repr=False, compare=False)  # seconds by load
    _errors: Line = field(init=False, repr=False, compare=False)  # by load
    # Each load's costs by draft length, beyond those of verifying
    _drafting: tuple[DraftingCosts, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """A watch asks hundreds of times for each replica: what is the same is made once."""
        plain = [(each.running, each.plain_s) for each in self.loads if each.plain_s]
        errors = Line((each.running, each.error) for each in self.loads)
        object.__setattr__(self, "_plain", Line(plain) if plain else None)
        object.__setattr__(self, "_errors", errors)
        drafting = (
            DraftingCosts(each.rounds, self._verification(each.running)) for each in self.loads
        )
        object.__setattr__(self, "_drafting", tuple(drafting))

    @classmethod
    def from_results(cls, results: Results, proposer: str = "") -> "Costs | None":
        """Of one proposer, by default that of the best arm. None where tune measured nothing of it
        from which costs follow."""
        if not proposer:
            best = None if results.main is None else results.main.best_arm
            proposer = "" if best is None else proposer_name(best.speculation)
        shares = {each.name: each.share_drafted for each in results.acceptance}
        seconds = {int(size): each for size, each in results.step_seconds.items()}
        table = StepCosts(seconds) if len(seconds) > 1 else None
        loads, methods = [], set()
        for load in results.loads:
            off_ms = () if load.off is None else load.off.tpot_ms
            arms = {}  # the error of each → its cost
            for arm in load.arms:
                if proposer_name(arm.speculation) == proposer and "tpot" in arm.ratios:
                    cost = _round_cost(arm, shares.get(proposer) or 1.0)
                    if cost is not None:
                        methods.add(arm.speculation.method)
                        arms[_error(arm), arm.name] = cost
            if not arms or load.concurrency is None:
                continue
            (error, _), surest = min(arms.items())
            loads.append(
                LoadCosts(
                    float(load.concurrency),
                    {k: cost for k, cost, _ in arms.values()},
                    error,
                    share_drafted=surest[2],
                    plain_s=float(np.median(off_ms)) / 1e3 if off_ms else None,
                )
            )
        loads.sort(key=lambda each: each.running)
        return cls(tuple(loads), table=table, method=methods.pop()) if loads else None

    @classmethod
    def from_steps(cls, step_seconds: Mapping[int, float]) -> "Costs | None":
        """From the table that our server measures at its start, which knows no drafting."""
        if len(step_seconds) < 2:
            return None
        table = StepCosts(step_seconds)
        loads = []
        for running in (1, 2, 4, 8, 16, 32, 64):
            if running == 1 or 2 * running <= max(step_seconds):
                plain = table.seconds(running)
                loads.append(LoadCosts(float(running), {}, _WITHOUT_INTERVAL, 1.0, plain))
        return cls(tuple(loads), _MEASURED_AT_START, table, timed=table)

    def nearest(self, running: float) -> LoadCosts:
        return min(self.loads, key=lambda each: abs(math.log(each.running / running)))

    def round_at(self, running: float, k: float) -> tuple[float, float] | None:
        """The cost of a round in plain steps, and the standard error of its logarithm. None far
        beyond the loads that were measured."""
        low, high = self.loads[0].running / _BEYOND, self.loads[-1].running * _BEYOND
        if not low <= running <= high:
            return None
        drafting = (each.beyond_verification(k) for each in self._drafting)
        points = (each.running for each in self.loads)
        beyond = Line(zip(points, drafting, strict=True)).at(running)
        cost = max(beyond + self._verification(running)(k), 1.0)
        return cost, max(self._errors.at(running), min(each.error for each in self.loads))

    def _verification(self, running: float) -> Callable[[float], float]:
        """Draft tokens of each text → what verifying them costs, in plain steps."""
        if self.table is None or self._plain is None:
            return lambda k: 1.0
        plain_s = max(self._plain.at(running), self.table.seconds(running))
        return verification_costs(self.table, running, plain_s)


def _round_cost(arm: ArmResult, share_drafted: float) -> tuple[float, float, float] | None:
    """(mean draft length, plain steps of a round, share of steps with a draft)."""
    ratio = arm.pace_ratio or arm.ratios["tpot"].estimate
    if arm.counts is not None:
        found = round_cost_from_speedup(arm.counts, arm.num_tokens, arm.num_texts, ratio)
        steps = arm.counts.num_steps(arm.num_tokens, arm.num_texts)
        return None if found is None else (found.k, found.steps, arm.counts.num_drafts / steps)
    # Results of before the counts were kept.
    if not arm.acceptance_rate or not arm.acceptance_length or arm.acceptance_length <= 1:
        return None
    step_cost = (1 + share_drafted * (arm.acceptance_length - 1)) / ratio
    cost = 1 + (step_cost - 1) / share_drafted
    mean_k = (arm.acceptance_length - 1) / arm.acceptance_rate
    return (mean_k, cost, share_drafted) if cost > 0 else None


def _error(arm: ArmResult) -> float:
    """Standard error of the logarithm of its speedup."""
    ratio = arm.ratios["tpot"]
    if ratio.low is None or ratio.high is None or ratio.low <= 0:
        return _WITHOUT_INTERVAL
    return (math.log(ratio.high) - math.log(ratio.low)) / (2 * _NORMAL)
