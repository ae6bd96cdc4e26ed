"""Where a server is saturated: more load makes its answers later, and no more of them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

GAIN = 0.05  # a throughput that is higher by less has stopped growing; so has a time
KEPT_UP = 0.90  # of the requests that come, at least so many end meanwhile


@dataclass(frozen=True, slots=True)
class LoadPoint:
    """What one load gave."""

    size: float  # requests at a time, or a second
    tokens_per_s: float
    e2e_ms: float  # P50
    requests_per_s: float = 0.0  # that ended
    offered_per_s: float | None = None  # that came, where they came by the clock


@dataclass(frozen=True, slots=True)
class Saturation:
    at: float | None  # the load; None: none of those measured
    words: str


def find_saturation(points: Sequence[LoadPoint]) -> Saturation | None:
    """With so many at a time, the lightest load such that no heavier one gives 5 % more tokens a
    second, while the heaviest takes longer by more than that. With requests that come by the clock,
    the heaviest rate that the server keeps up with. None for fewer than two loads."""
    ordered = sorted(points, key=lambda each: each.size)
    if len(ordered) < 2:
        return None
    is_rate = all(each.offered_per_s is not None for each in ordered)
    return _by_rate(ordered) if is_rate else _by_slots(ordered)


def _by_slots(points: Sequence[LoadPoint]) -> Saturation:
    *_, before, last = points
    for place, point in enumerate(points[:-1]):
        heavier = points[place + 1 :]
        gain = max(each.tokens_per_s for each in heavier) / max(point.tokens_per_s, 1e-9)
        delay = last.e2e_ms / max(point.e2e_ms, 1e-9)
        if gain <= 1 + GAIN < delay:
            is_first = " or less: it is the lightest load here" if place == 0 else ""
            return Saturation(
                point.size,
                f"saturated at concurrency {point.size:g}{is_first}. More at a time give at most "
                f"{gain:.2f} times its tokens/s; {last.size:g} at a time take {delay:.2f} times "
                "as long",
            )
    growth = last.tokens_per_s / max(before.tokens_per_s, 1e-9)
    return Saturation(
        None,
        f"not saturated up to concurrency {last.size:g}: it gives {growth:.2f} times the tokens/s "
        f"of {before.size:g}; heavier loads would show where it ends",
    )


def _by_rate(points: Sequence[LoadPoint]) -> Saturation:
    behind = [each for each in points if _share(each) < KEPT_UP]
    kept = [each for each in points if not behind or each.size < behind[0].size]
    if not behind:
        return Saturation(None, f"keeps up with {points[-1].size:g} requests/s, the most sent here")
    first = behind[0]
    most = max(each.requests_per_s for each in points)
    lost = (
        f"of {first.offered_per_s:.2f} requests that came a second it ended "
        f"{first.requests_per_s:.2f}, and {most:.2f} at most"
    )
    if not kept:
        return Saturation(None, f"keeps up with none of these rates: {lost}")
    at = kept[-1].size
    return Saturation(at, f"saturated between {at:g} and {first.size:g} requests/s: {lost}")


def _share(point: LoadPoint) -> float:
    return point.requests_per_s / point.offered_per_s if point.offered_per_s else 1.0
