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
        arms = [_by_block(each) for each in (baseline, candidate)]
        measured = [
            Throughput(*(self._rate(arm[block]) for arm in arms))
            for block in sorted(arms[0].keys() & arms[1].keys())
            if any(self._num_met(arm[block]) for arm in arms)
        ]
        return throughput_ratio(measured, level=level, draws=draws) if measured else None

    def _num_met(self, block: Sequence[Record]) -> int:
        return sum(meets(each, self.slo or {}) for each in block)

    def _rate(self, block: Sequence[Record]) -> float:
        """Requests a second within the SLO. None at all counts as half a one: a block in which
        only one arm met it is the strongest evidence there is, and must not be left out."""
        start = min(each.scheduled_ns for each in block)
        end = max(each.last_ns or 0 for each in block)
        return max(self._num_met(block), 0.5) / max(end - start, 1) * 1e9


def _by_block(records: Sequence[Record]) -> dict[int, list[Record]]:
    blocks: dict[int, list[Record]] = {}
    for each in records:
        if each.ok and not each.is_warmup:
            blocks.setdefault(each.block, []).append(each)
    return blocks
