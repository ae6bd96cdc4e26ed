"""What is to be made better, as a ratio over off. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outdraft.errors import unknown_choice
from outdraft.measure.evidence import ratio_of
from outdraft.measure.summary import meets
from outdraft.records import Record
from outdraft.stats import DRAWS, Ratio, Throughput, throughput_ratio

OBJECTIVES = ("tpot", "e2e", "throughput", "goodput")


@dataclass(frozen=True, slots=True)
class Objective:
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
        draws: int = DRAWS,
    ) -> Ratio | None:
        if self.name != "goodput":
            return ratio_of(self.name, baseline, candidate, level=level, draws=draws)
        blocks = sorted({each.block for each in baseline} & {each.block for each in candidate})
        rates = [(self._rate(baseline, block), self._rate(candidate, block)) for block in blocks]
        measured = [Throughput(one, other) for one, other in rates if one and other]
        return throughput_ratio(measured, level=level) if measured else None

    def _rate(self, records: Sequence[Record], block: int) -> float:
        """Requests a second within the SLO, in one block."""
        members = [each for each in records if each.block == block and each.ok]
        met = sum(meets(each, self.slo or {}) for each in members)
        if not met:
            return 0.0
        start = min(each.scheduled_ns for each in members)
        end = max(each.last_ns or 0 for each in members)
        return met / max(end - start, 1) * 1e9
