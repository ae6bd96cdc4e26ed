"""What a search goes by: its objective, the rules of its races, its arms and loads."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from outdraft.errors import unknown_choice
from outdraft.measure.evidence import ratio_of
from outdraft.measure.plateau import counted_ns
from outdraft.measure.summary import meets
from outdraft.plan.findings import Pairing, Shares
from outdraft.records import Record
from outdraft.speculation import Speculation
from outdraft.stats.ratios import Ratio, Throughput, throughput_ratio
from outdraft.tune.arm import Load
from outdraft.tune.cards import Cards
from outdraft.tune.options import OBJECTIVES
from outdraft.tune.pace import Pace


@dataclass(frozen=True, slots=True)
class Objective:
    """What is to be improved, as a ratio over off; above 1 is better."""

    name: str = "e2e"
    slo: Mapping[str, float] | None = None  # ms by name; goodput counts requests within it

    def __post_init__(self) -> None:
        if self.name not in OBJECTIVES:
            raise unknown_choice("objective", self.name, OBJECTIVES)

    def ratio(
        self,
        baseline: Sequence[Record],
        candidate: Sequence[Record],
        level: float = 0.95,
    ) -> Ratio | None:
        if self.name != "goodput":
            return ratio_of(self.name, baseline, candidate, level=level)
        arms = [_by_block(each) for each in (baseline, candidate)]
        measured = [
            Throughput(*(self._rate(arm[block]) for arm in arms))
            for block in sorted(arms[0].keys() & arms[1].keys())
            if any(self._num_within(arm[block]) for arm in arms)
        ]
        return throughput_ratio(measured, level=level) if measured else None

    def _num_within(self, block: Sequence[Record]) -> int:
        done = [each for each in block if each.ok and not each.is_warmup]
        return sum(meets(each, self.slo or {}) for each in done)

    def _rate(self, block: Sequence[Record]) -> float:
        """Requests a second within the SLO. None at all counts as half a request: a block in which
        only one arm met the SLO is strong evidence, and a rate of 0 would leave it out."""
        return max(self._num_within(block), 0.5) / max(counted_ns(block), 1) * 1e9


@dataclass(frozen=True, slots=True)
class Rules:
    """Of the race under one load."""

    objective: Objective
    num_profile: int = 2  # blocks of the profile
    max_finalists: int = 3
    max_blocks: int = 20
    margin: float = 0.01  # a smaller difference is none
    load_name: str = "this load"
    concurrency: int | None = None  # of the load; None: requests come by the clock
    fills_slots: bool = False  # so many run to the end of a block
    memory: Mapping[str, Shares] = field(default_factory=dict)  # by the proposer's name
    pairing: Mapping[str, Pairing] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SearchSettings:
    arms: tuple[Speculation, ...]
    loads: tuple[Load, ...]  # the first is the main one
    rules: Rules
    budget_s: float
    # Blocks of the profile by the name of a load, where not as in the rules: a large block says as
    # much as two small ones.
    num_profile: Mapping[str, int] = field(default_factory=dict)
    schedule_methods: Collection[str] = ()  # whose draft length the engine can change by its load
    keeps_engines: bool = False  # they stay up to the end
    shares_process: bool = True  # one process serves every draft length of a proposer
    cards: Cards = Cards()  # noqa: RUF009 (frozen)
    pace: Pace = Pace()  # noqa: RUF009 (frozen)

    @property
    def in_visits(self) -> bool:
        """Engines come and go, and take long to."""
        return not self.keeps_engines and not self.shares_process


def _by_block(records: Sequence[Record]) -> dict[int, list[Record]]:
    blocks: dict[int, list[Record]] = {}
    for each in records:
        blocks.setdefault(each.block, []).append(each)
    return blocks
