"""What a verdict is made from: ratios with intervals, acceptance, and the circumstances.

Every ratio is a speedup: above 1 the candidate is better. What was not measured is None.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from outdraft.decide.texts import Agreement
from outdraft.goodput import RoundCost
from outdraft.plan.findings import Pairing, Shares
from outdraft.stats.ratios import Ratio


@dataclass(frozen=True, slots=True)
class AcceptanceSummary:
    rate: float  # over all draft tokens
    p10: float | None = None  # over requests
    p50: float | None = None
    p90: float | None = None
    by_category: Mapping[str, float] = field(default_factory=dict)
    by_temperature: Mapping[str, float] = field(default_factory=dict)
    per_position: tuple[float, ...] = ()  # of the rounds whose draft had that position
    length: float | None = None  # tokens emitted per round that proposed something
    num_requests: int = 0  # whose acceptance was reported
    share_drafted: float | None = None  # of the steps: those that had a draft at all


@dataclass(frozen=True, slots=True)
class Evidence:
    e2e: Ratio | None
    tpot: Ratio | None = None
    ttft: Ratio | None = None
    throughput: Ratio | None = None
    p99: Ratio | None = None  # of e2e; None where the sample is too small for one
    total: Ratio | None = None  # of all requests' seconds; e2e is that of a typical request
    by_category: Mapping[str, Ratio] = field(default_factory=dict)
    by_temperature: Mapping[str, Ratio] = field(default_factory=dict)
    tpot_by_part: Mapping[str, Ratio] = field(default_factory=dict)  # by the names of `parts`
    part_level: float = 0.95  # of the intervals of parts and of the P99
    acceptance: AcceptanceSummary | None = None
    mean_output_tokens: float | None = None
    temperatures: tuple[float, ...] = ()  # all that occur
    noise_floor: float = 0.0  # half-width of an A/A run's interval
    texts: Agreement | None = None  # of both arms
    text_floor: Agreement | None = None  # of the baseline and itself
    is_lossy: bool = False  # the candidate's texts differ by design
    error_rate: float = 0.0
    problems: tuple[str, ...] = ()  # of the measurement; remarks if it is valid
    is_valid: bool = True
    more_requests: int | None = None  # about how many more would make it clear
    ttft_bound: bool = False  # the service promises a time to first token
    memory: Shares | None = None
    pairing: Pairing | None = None
    costs: RoundCost | None = None
    unquantized_acceptance: float | None = None  # of the same draft at full precision
    method: str | None = None  # of the candidate; None: it does not say
    load: str = "this load"  # that the costs were measured at
    concurrency: int | None = None  # requests at a time; None: they came by the clock
    has_idle_slots: bool = True  # towards the end of a block fewer run than the load names

    @property
    def parts(self) -> dict[str, Ratio]:
        """Of the traffic, by category and by temperature."""
        return named_parts(self.by_category, self.by_temperature)


def named_parts(categories: Mapping[str, Ratio], bands: Mapping[str, Ratio]) -> dict[str, Ratio]:
    """By names that say the kind of a part: "category code", "temperature 0"."""
    kinds = {"category": categories, "temperature": bands}
    return {f"{kind} {name}": part for kind in kinds for name, part in kinds[kind].items()}
