"""The results of a tuning run: plain values, versioned JSON. Reports and configurations are made
from them. A speedup is over off under the same load; above 1 the arm is better."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from itertools import repeat
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from outdraft.acceptance import Acceptance
from outdraft.decide.evidence import Evidence
from outdraft.decide.texts import Agreement, TextFinding, judge_texts
from outdraft.decide.verdict import DEFAULT_MARGIN, SHIP, SHIP_FOR, Verdict, wins_as_a_whole
from outdraft.errors import OptionError
from outdraft.speculation import Speculation
from outdraft.stats.ratios import Ratio

SCHEMA = 1
_MOST_NAMED = 4  # parts of the traffic; of more their number is said

# What became of an arm under a load, in the order of tables.
BASELINE = "baseline"  # off: what all others are measured against
BEST = "best"  # of those that raced; it may still lose against off
RACED = "raced"  # measured to the end
DROPPED = "dropped"  # measured, and unlikely to beat the best by more than matters
PROFILED = "profiled"  # measured in the first blocks alone: others were predicted to be better
PREDICTED = "predicted"  # not measured: others were predicted to be better
UNTRIED = "not measured"  # nor predicted: the run ended before
FAILED = "failed"  # crashed, ran out of memory, did not speculate
STATES = (BASELINE, BEST, RACED, DROPPED, PROFILED, PREDICTED, UNTRIED, FAILED)

# Where an acceptance comes from, and that in words. Results of before do not say it.
FROM_ANSWERS, FROM_COUNTERS = "answers", "counters"
SOURCES = {
    FROM_ANSWERS: "from each answer",
    FROM_COUNTERS: "from the server's counters, per block",
}


@dataclass(frozen=True, slots=True)
class ArmResult:
    """One speculation under one load."""

    name: str  # e.g. "draft_model smollm2-135m-draft k=5 int8"
    speculation: Speculation
    state: str
    reason: str = ""  # why it was dropped, why it failed
    predicted: float | None = None  # speedup, from the first blocks and other arms' later ones
    measured: Ratio | None = None  # speedup in the objective
    # By their names in measure/evidence: of the best arm those of its verdict, with their levels
    ratios: Mapping[str, Ratio] = field(default_factory=dict)
    acceptance_rate: float | None = None
    acceptance_length: float | None = None
    acceptance_source: str = ""  # FROM_ANSWERS, FROM_COUNTERS
    num_requests: int = 0  # that succeeded
    num_errors: int = 0  # in all valid blocks, those without one beside them too
    tokens_per_s: float | None = None
    goodput_per_s: float | None = None  # requests a second within the SLO
    ttft_ms: tuple[float, ...] = ()  # of every request; off and best only
    tpot_ms: tuple[float, ...] = ()
    e2e_ms: tuple[float, ...] = ()
    texts: Agreement | None = None  # with off's
    # What was drafted and accepted, and in how much text. Results of before do not have it.
    counts: Acceptance | None = None
    num_tokens: int = 0
    num_texts: int = 0
    pace_ratio: float | None = None  # of off's seconds over all tokens to its own; not a mean
    raced: Ratio | None = None  # of the best arm: the speedup at which the race chose it
    running: float | None = None  # requests, as the server counts; where several are sent at a time

    @property
    def fate(self) -> str:
        """The state. Results of before call an arm predicted though its first blocks ran, or though
        nothing was known of it."""
        if self.state != PREDICTED or (self.measured is None and self.predicted is not None):
            return self.state
        return UNTRIED if self.measured is None else PROFILED

    @property
    def share_drafted(self) -> float | None:
        """Of its steps, those that had a draft at all: n-grams and suffixes often find none."""
        if self.counts is None:
            return None
        return self.counts.share_drafted(self.num_tokens, self.num_texts)

    @property
    def speedup(self) -> float | None:
        """Measured, or predicted where the arm was not measured."""
        return self.predicted if self.measured is None else self.measured.estimate


@dataclass(frozen=True, slots=True)
class FinalPrompts:
    """Of the final of a load."""

    num: int  # different ones
    num_raced: int  # of them, that the race had too
    num_requests: int  # that were made of them, off's included


@dataclass(frozen=True, slots=True)
class LoadResult:
    name: str  # "concurrency 4", "2 requests/s"
    concurrency: int | None
    rate: float | None
    arms: tuple[ArmResult, ...]
    best: str | None  # name of an arm; None where nothing could be measured
    verdict: Verdict | None  # of best against off
    text_floor: Agreement | None = None  # of off's texts and its own, sent again
    prompts: FinalPrompts | None = None  # None: nothing was judged. Not in results of before

    def finding_on(self, arm: ArmResult) -> TextFinding:
        """Whether the arm writes off's text."""
        is_lossy = arm.speculation.is_lossy
        return TextFinding.NONE if is_lossy else judge_texts(arm.texts, self.text_floor)

    @property
    def text_warning(self) -> str:
        """That the best arm does not write off's text, or may not; else empty."""
        arm = self.best_arm
        words = {TextFinding.OTHER: "writes other texts", TextFinding.DOUBTFUL: "may write others"}
        return "" if arm is None else words.get(self.finding_on(arm), "")

    @property
    def best_arm(self) -> ArmResult | None:
        return next((arm for arm in self.arms if arm.name == self.best), None)

    @property
    def measured(self) -> Ratio | None:
        """The speedup of the best arm over off."""
        return None if self.best_arm is None else self.best_arm.measured

    @property
    def off(self) -> ArmResult | None:
        """The baseline; None where it failed."""
        return next((arm for arm in self.arms if arm.state == BASELINE), None)

    @property
    def pays_for_all(self) -> bool:
        """Whether speculation may be on for everything that a server gets. Where only parts of the
        traffic win (SHIP FOR), the whole of it must win too."""
        verdict = self.verdict
        if verdict is None or verdict.decision != SHIP_FOR:
            return verdict is not None and verdict.decision == SHIP
        return self._won_before if verdict.whole_wins is None else verdict.whole_wins

    @property
    def _won_before(self) -> bool:
        """The same of results of before, whose verdict does not say it. It is right for runs that
        kept all slots busy to the end of a block, as `tune` does: times are enough to win, unless
        throughput clearly loses. Results do not tell whether an early run left slots idle."""
        ratios = {} if self.best_arm is None else self.best_arm.ratios
        whole = Evidence(
            e2e=ratios.get("e2e"),
            throughput=ratios.get("throughput"),
            p99=ratios.get("p99"),
            total=ratios.get("total"),
            concurrency=self.concurrency,
            has_idle_slots=False,
        )
        return wins_as_a_whole(whole, DEFAULT_MARGIN)

    @property
    def losers(self) -> str:
        """The parts that lose though the whole wins, in words; empty where there are none. Verdicts
        of before do not name them."""
        if self.verdict is None or self.verdict.decision != SHIP_FOR or not self.pays_for_all:
            return ""
        names = self.verdict.losers
        if not names:
            return "some of the traffic may lose by it"
        if len(names) > _MOST_NAMED:
            return f"{len(names)} parts of the traffic lose by it"
        return f"{', '.join(names)} {'loses' if len(names) == 1 else 'lose'} by it"

    @property
    def routing_advice(self) -> str:
        """Which parts of the traffic should go to a server of their own, in one line: engines
        cannot switch by category. Empty where there are none."""
        if self.verdict is None or self.verdict.decision != SHIP_FOR:
            return ""
        parts = ", ".join(self.verdict.ship_for)
        if self.pays_for_all:
            return f"this mix wins as a whole, the most with {parts}; {self.losers}"
        return f"route {parts} to a server with it; for mixed traffic it stays off"


@dataclass(frozen=True, slots=True)
class AcceptanceResult:
    """One proposer (method, draft, quantization, rule) at its largest k: first blocks and race of
    all loads together."""

    name: str  # e.g. "draft_model smollm2-135m-draft int8"
    k: int
    rate: float
    length: float | None
    per_position: tuple[float, ...]  # share of rounds that accepted this position
    per_position_by_temperature: Mapping[str, tuple[float, ...]]
    # category → P10, P50, P90 over its requests; None: too few
    by_category: Mapping[str, tuple[float | None, float | None, float | None]]
    by_temperature: Mapping[str, float]
    num_requests: int
    share_drafted: float | None = None  # of the steps that had a draft at all
    num_by_category: Mapping[str, int] = field(default_factory=dict)  # requests
    num_by_temperature: Mapping[str, int] = field(default_factory=dict)
    source: str = ""  # of the rate: FROM_ANSWERS, or FROM_COUNTERS, which know no parts


@dataclass(frozen=True, slots=True)
class ScheduleResult:
    """The schedule itself, measured under one load."""

    load: str
    measured: Ratio | None  # speedup in the objective
    reason: str = ""  # why it failed

    @property
    def is_worse(self) -> bool:
        """It failed, or surely lost against off."""
        high = None if self.measured is None else self.measured.high
        return bool(self.reason) or (high is not None and high < 1)


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
    judged: tuple[tuple[str, str], ...] = ()  # load and arm of each. Not in results of before


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
    scheduled: tuple[ScheduleResult, ...] = ()  # the schedule, where it was measured
    memory: MemoryResult | None = None
    main_load: str = ""  # the load whose verdict is the headline
    started_at: str = ""
    duration_s: float = 0.0
    num_requests: int = 0  # measured ones, all arms and loads
    notes: tuple[str, ...] = ()
    # Tokens of a step → its seconds, as the engine measured them. Not in results of before.
    step_seconds: Mapping[str, float] = field(default_factory=dict)
    # Whether the engine can change the draft length by load. Not in results of before.
    has_schedule: bool | None = None
    is_complete: bool = True  # False: the budget ended before a verdict or the best arm was clear
    # Seconds of a budget in which nothing would have been left out; None: nothing was
    enough_s: float | None = None

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
    known = [each.name for each in fields(Results) if each.name in data]
    results: Results = _decode(Results, {name: data[name] for name in known})
    return results


def _decode(kind: Any, value: Any) -> Any:
    """A JSON value as the type that a dataclass declares. TypeError for keys that it lacks."""
    origin, inner = get_origin(kind), get_args(kind)
    if value is None:
        return None
    if is_dataclass(kind):
        make: Any = kind
        kinds = get_type_hints(kind)
        return make(**{name: _decode(kinds.get(name), each) for name, each in value.items()})
    if origin is UnionType:  # X | None
        return _decode(inner[0], value)
    if origin is tuple:
        items = repeat(inner[0]) if inner[-1] is Ellipsis else inner
        return tuple(map(_decode, items, value))
    if origin is Mapping:
        return {key: _decode(inner[1], each) for key, each in value.items()}
    return value
