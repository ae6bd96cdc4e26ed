"""What a tuning run found: plain values, versioned JSON. Reports and configs are made from this.

A speedup is over off under the same load; above 1 the arm is better.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from outdraft.errors import OptionError
from outdraft.stats import Ratio

SCHEMA = 1

# What became of an arm under a load, in the order of tables.
BASELINE = "baseline"  # off: what all others are measured against
BEST = "best"  # of those that raced, by all that is known (it may still lose against off)
RACED = "raced"  # measured to the end
DROPPED = "dropped"  # measured, and hardly better than the best by more than matters
PREDICTED = "predicted"  # not measured: its prediction was behind
FAILED = "failed"  # crashed, ran out of memory, did not speculate
STATES = (BASELINE, BEST, RACED, DROPPED, PREDICTED, FAILED)


@dataclass(frozen=True, slots=True)
class ArmResult:
    """One speculation under one load."""

    name: str  # e.g. "draft_model smollm2-135m-draft k=5 int8"
    speculation: Mapping[str, Any]  # Speculation's own keys
    state: str
    reason: str = ""  # why it was dropped, why it failed
    predicted: float | None = None  # speedup, from the first blocks and other arms' later ones
    measured: Ratio | None = None  # speedup in the objective
    ratios: Mapping[str, Ratio] = field(default_factory=dict)  # e2e, tpot, ttft, throughput, p99
    acceptance_rate: float | None = None
    acceptance_length: float | None = None
    num_requests: int = 0  # that succeeded
    num_errors: int = 0
    tokens_per_s: float | None = None
    goodput_per_s: float | None = None  # requests a second within the SLO
    ttft_ms: tuple[float, ...] = ()  # of every request; off and best only
    tpot_ms: tuple[float, ...] = ()
    e2e_ms: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadResult:
    name: str  # "concurrency 4", "2 requests/s"
    concurrency: int | None
    rate: float | None
    arms: tuple[ArmResult, ...]
    best: str | None  # name of an arm; None where nothing could be measured
    verdict: Mapping[str, Any] | None  # of best against off: Verdict.to_json()


@dataclass(frozen=True, slots=True)
class AcceptanceResult:
    """One proposer (method, draft, quantization, rule), over all its requests at the largest k."""

    name: str  # e.g. "draft_model smollm2-135m-draft int8"
    k: int
    rate: float
    length: float | None
    per_position: tuple[float, ...]  # share of rounds in which that place was accepted
    per_position_by_temperature: Mapping[str, tuple[float, ...]]
    # category → P10, P50, P90 over its requests; None: too few
    by_category: Mapping[str, tuple[float | None, float | None, float | None]]
    by_temperature: Mapping[str, float]
    num_requests: int
    share_drafted: float | None = None  # of the steps that had a draft at all
    num_by_category: Mapping[str, int] = field(default_factory=dict)  # requests
    num_by_temperature: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ScheduleResult:
    """The schedule itself, measured under one load."""

    load: str
    measured: Ratio | None  # speedup in the objective
    reason: str = ""  # why it failed


@dataclass(frozen=True, slots=True)
class Pruned:
    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class MemoryResult:
    """Bytes, from the plan, for the best arm."""

    target: int
    draft: int
    kv: int
    free: int
    total: int
    note: str = ""  # what was assumed


@dataclass(frozen=True, slots=True)
class PredictionResult:
    """How wrong the predictions were, over the arms that were measured."""

    num_arms: int
    within_15_percent: float | None  # share of them
    median_error: float | None  # |predicted / measured - 1|


@dataclass(frozen=True, slots=True)
class Results:
    settings: Mapping[str, Any]
    environment: Mapping[str, Any]
    backend: str
    target: str
    objective: str  # "tpot", "e2e", "throughput" or "goodput"
    loads: tuple[LoadResult, ...]
    acceptance: tuple[AcceptanceResult, ...]
    pruned: tuple[Pruned, ...]
    prediction: PredictionResult
    schedule: tuple[tuple[int, int, int], ...] = ()  # (from, to, k) by requests running; 0: off
    scheduled: tuple[ScheduleResult, ...] = ()  # what it gave, where that was measured
    memory: MemoryResult | None = None
    main_load: str = ""  # the load whose verdict is the headline
    started_at: str = ""
    duration_s: float = 0.0
    num_requests: int = 0  # measured ones, all arms and loads
    notes: tuple[str, ...] = ()
    is_complete: bool = (
        True  # False: the budget ended before all was clear: a verdict, or which arm is the best
    )

    @property
    def main(self) -> LoadResult | None:
        return next((each for each in self.loads if each.name == self.main_load), None)

    def to_json(self) -> dict[str, Any]:
        return {"schema": SCHEMA, "kind": "tune", **asdict(self)}


def results_from_json(data: Mapping[str, Any]) -> Results:
    """The inverse of `Results.to_json`."""
    if data.get("kind") != "tune" or data.get("schema") != SCHEMA:
        seen = f"kind {data.get('kind')!r}, schema {data.get('schema')!r}"
        raise OptionError(
            f"no results of a tuning run: {seen}; this version reads kind 'tune', schema {SCHEMA}"
        )
    values = {each.name: data[each.name] for each in fields(Results) if each.name in data}
    values["loads"] = tuple(_load(each) for each in values["loads"])
    values["acceptance"] = tuple(_acceptance(each) for each in values["acceptance"])
    values["pruned"] = tuple(Pruned(**each) for each in values["pruned"])
    values["prediction"] = PredictionResult(**values["prediction"])
    values["schedule"] = tuple(tuple(each) for each in values.get("schedule", ()))
    values["scheduled"] = tuple(_scheduled(each) for each in values.get("scheduled", ()))
    memory = values.get("memory")
    values["memory"] = None if memory is None else MemoryResult(**memory)
    values["notes"] = tuple(values.get("notes", ()))
    return Results(**values)


def _load(data: Mapping[str, Any]) -> LoadResult:
    return LoadResult(**{**data, "arms": tuple(_arm(each) for each in data["arms"])})


def _scheduled(data: Mapping[str, Any]) -> ScheduleResult:
    ratio = data["measured"]
    return ScheduleResult(**{**data, "measured": None if ratio is None else Ratio(**ratio)})


def _arm(data: Mapping[str, Any]) -> ArmResult:
    values = dict(data)
    values["measured"] = None if data["measured"] is None else Ratio(**data["measured"])
    values["ratios"] = {name: Ratio(**each) for name, each in data["ratios"].items()}
    for name in ("ttft_ms", "tpot_ms", "e2e_ms"):
        values[name] = tuple(data[name])
    return ArmResult(**values)


def _acceptance(data: Mapping[str, Any]) -> AcceptanceResult:
    values = dict(data)
    values["per_position"] = tuple(data["per_position"])
    values["per_position_by_temperature"] = {
        name: tuple(each) for name, each in data["per_position_by_temperature"].items()
    }
    values["by_category"] = {name: tuple(each) for name, each in data["by_category"].items()}
    return AcceptanceResult(**values)
