"""Acceptance: by position, by temperature, by category."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from outdraft.report.figures.arms import proposer_of
from outdraft.report.tune_table import best_of
from outdraft.tune.results import AcceptanceResult, Results

MOST_TOGETHER = 6  # curves in one plot; more cannot be told apart


@dataclass(frozen=True, slots=True)
class Curve:
    name: str
    values: tuple[float, ...]
    is_whole: bool = False  # over all temperatures
    count: int | None = None  # requests; None: not told


@dataclass(frozen=True, slots=True)
class Range:
    category: str
    p10: float | None
    p50: float | None
    p90: float | None
    count: int | None = None  # requests; None: not told


def ranked(results: Results) -> tuple[AcceptanceResult, ...]:
    """The best arm's proposer first, the others by their rate."""
    best = None if results.main is None else best_of(results.main)
    first = None if best is None else proposer_of(best)
    return tuple(sorted(results.acceptance, key=lambda each: (each.name != first, -each.rate)))


def survival(found: Sequence[AcceptanceResult]) -> tuple[Curve, ...]:
    return tuple(Curve(each.name, each.per_position) for each in found if each.per_position)


def survival_by_temperature(found: AcceptanceResult) -> tuple[Curve, ...]:
    """All of it, then the bands; a lone band is all of it."""
    bands = [
        Curve(f"temperature {name}", values, count=found.num_by_temperature.get(name))
        for name, values in found.per_position_by_temperature.items()
        if values
    ]
    count = found.num_requests
    whole = [Curve("all", found.per_position, True, count)] if found.per_position else []
    return tuple(whole + (bands if len(bands) > 1 or not whole else []))


def temperature_bands(found: Sequence[AcceptanceResult]) -> tuple[str, ...]:
    """All that occur, in the order they are told."""
    return tuple(dict.fromkeys(band for each in found for band in each.by_temperature))


def category_ranges(found: AcceptanceResult) -> tuple[Range, ...]:
    """The category with the highest median first; those not known last."""
    counts = found.num_by_category
    ranges = [Range(name, *values, counts.get(name)) for name, values in found.by_category.items()]
    return tuple(sorted(ranges, key=lambda each: -(each.p50 or 0.0)))
