"""What a verdict is made from: ratios with intervals, acceptance, and facts around them.

Every ratio is a speedup: above 1 the candidate is better. What was not measured is None.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from outdraft.stats import Ratio


@dataclass(frozen=True, slots=True)
class Acceptance:
    rate: float  # over all draft tokens
    p10: float | None = None  # over requests
    p50: float | None = None
    p90: float | None = None
    by_category: Mapping[str, float] = field(default_factory=dict)
    by_temperature: Mapping[str, float] = field(default_factory=dict)
    per_position: tuple[float, ...] = ()  # share of the rounds that had the place
    length: float | None = None  # tokens emitted per round that proposed something
    num_requests: int = 0  # whose server told


@dataclass(frozen=True, slots=True)
class Equivalence:
    """Greedy texts of the same prompts in both arms."""

    num_compared: int
    num_identical: int
    first_divergences: tuple[int, ...] = ()  # characters into the text, of those that differ

    @property
    def share(self) -> float:
        return self.num_identical / self.num_compared if self.num_compared else 1.0


@dataclass(frozen=True, slots=True)
class Memory:
    """Shares of the device's memory, from the plan."""

    target: float
    draft: float
    headroom: float


@dataclass(frozen=True, slots=True)
class Pairing:
    size_ratio: float | None = None  # target parameters over draft parameters
    same_family: bool | None = None
    same_tokenizer: bool | None = None


@dataclass(frozen=True, slots=True)
class Costs:
    k: float  # draft tokens of a round, on average
    round: float  # what a round of k costs on this machine, in plain steps


@dataclass(frozen=True, slots=True)
class Evidence:
    e2e: Ratio | None
    tpot: Ratio | None = None
    ttft: Ratio | None = None
    throughput: Ratio | None = None
    p99: Ratio | None = None  # of e2e; None where the sample is too small for one
    by_category: Mapping[str, Ratio] = field(default_factory=dict)
    by_temperature: Mapping[str, Ratio] = field(default_factory=dict)
    acceptance: Acceptance | None = None
    mean_output_tokens: float | None = None
    temperatures: tuple[float, ...] = ()  # that occur
    noise_floor: float = 0.0  # half-width of an A/A run's interval
    equivalence: Equivalence | None = None
    error_rate: float = 0.0
    problems: tuple[str, ...] = ()  # of the measurement; it is invalid if is_valid is False
    is_valid: bool = True
    more_requests: int | None = None  # an unclear answer would need about so many more
    ttft_bound: bool = False  # the service promises a time to first token
    memory: Memory | None = None
    pairing: Pairing | None = None
    costs: Costs | None = None
    unquantized_acceptance: float | None = None  # of the same draft at full precision
    break_even: Mapping[str, float] = field(default_factory=dict)  # load → acceptance needed
