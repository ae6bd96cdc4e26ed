"""Predicted against measured speedups, and how wrong the prediction was."""

from __future__ import annotations

from dataclasses import dataclass

from outdraft.report.numbers import is_finite, percent
from outdraft.tune.results import Results

BAND = 0.15


@dataclass(frozen=True, slots=True)
class Point:
    arm: str
    load: str
    predicted: float
    measured: float
    num_pairs: int

    @property
    def error(self) -> float:
        """Above 0: predicted too high."""
        return self.predicted / self.measured - 1


def prediction_points(results: Results) -> tuple[Point, ...]:
    return tuple(
        Point(arm.name, load.name, arm.predicted, arm.measured.estimate, arm.measured.num_pairs)
        for load in results.loads
        for arm in load.arms
        if arm.measured is not None
        and is_finite(arm.predicted)
        and is_finite(arm.measured.estimate)
        and arm.measured.estimate > 0
    )


def prediction_words(results: Results) -> str:
    found = results.prediction
    if not found.num_arms or found.within_15_percent is None:
        return "No arm was both predicted and measured, so nothing is known of the prediction."
    within = round(found.within_15_percent * found.num_arms)
    words = (
        f"{within} of {found.num_arms} arms ({percent(found.within_15_percent)}) were predicted "
        "within 15 % of what was measured"
    )
    if found.median_error is not None:
        words += f"; half of them within {percent(found.median_error)}"
    points = prediction_points(results)
    if not points:
        return words + "."
    worst = max(points, key=lambda point: abs(point.error))
    side = "high" if worst.error > 0 else "low"
    return (
        f"{words}. The farthest off: {worst.arm} at {worst.load}, predicted "
        f"{worst.predicted:.2f}×, measured {worst.measured:.2f}× (n={worst.num_pairs}), "
        f"{percent(abs(worst.error))} too {side}."
    )
