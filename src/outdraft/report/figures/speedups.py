"""Speedup by draft length and load: one grid for each proposer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from outdraft.report.figures.arms import draft_length, proposer_of
from outdraft.report.numbers import is_finite
from outdraft.tune.results import BASELINE, BEST, FAILED, ArmResult, Results

_ENDS = (1.25, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0)  # speedups that may have the full colour


@dataclass(frozen=True, slots=True)
class Cell:
    arm: ArmResult

    @property
    def is_measured(self) -> bool:
        return self.arm.measured is not None

    @property
    def is_failed(self) -> bool:
        return self.arm.state == FAILED

    @property
    def is_best(self) -> bool:
        return self.arm.state == BEST

    @property
    def estimate(self) -> float | None:
        """Measured, or predicted where it was not."""
        if self.arm.measured is not None:
            return self.arm.measured.estimate
        return self.arm.predicted

    def heat(self, end: float) -> float:
        """-1 (slower than off by that factor) to 1 (faster); 0 is as fast as off."""
        estimate = self.estimate
        if not is_finite(estimate) or estimate <= 0:
            return 0.0
        return min(max(math.log(estimate) / math.log(end), -1.0), 1.0)


@dataclass(frozen=True, slots=True)
class Grid:
    proposer: str
    ks: tuple[int | None, ...]  # rows; None: an arm without a draft length
    loads: tuple[str, ...]  # columns
    cells: Mapping[tuple[int | None, str], Cell]

    @property
    def top(self) -> float:
        """The fastest measured; predictions come behind all of those."""
        return max((_rank(each) for each in self.cells.values()), default=0.0)


def heat_end(grids: Sequence[Grid]) -> float:
    """The speedup that has the full colour, so that differences are seen. Its inverse has too."""
    found = [cell.estimate for grid in grids for cell in grid.cells.values()]
    most = max((max(each, 1 / each) for each in found if is_finite(each) and each > 0), default=1.0)
    return next((end for end in _ENDS if end >= most), _ENDS[-1])


def _rank(cell: Cell) -> float:
    estimate = cell.estimate if is_finite(cell.estimate) else 0.0
    return estimate if cell.is_measured else estimate / 1000


def speedup_grids(results: Results) -> tuple[Grid, ...]:
    """The proposer with the fastest arm first."""
    loads = tuple(load.name for load in results.loads)
    found: dict[str, dict[tuple[int | None, str], Cell]] = {}
    for load in results.loads:
        for arm in load.arms:
            if arm.state != BASELINE and arm.speculation.get("method") != "off":
                cells = found.setdefault(proposer_of(arm), {})
                cells[(draft_length(arm), load.name)] = Cell(arm)
    grids = [
        Grid(proposer, tuple(sorted({k for k, _ in cells}, key=lambda k: k or 0)), loads, cells)
        for proposer, cells in found.items()
    ]
    return tuple(sorted(grids, key=lambda grid: -grid.top))
