"""Mixes of temperatures: `0.0:60%,0.8:40%`."""

import math
import random
from collections.abc import Sequence

from outdraft.errors import OptionError

MAX_TEMPERATURE = 10.0

# Bands by which traffic is split, with their upper ends: drafts fail most at high temperatures.
_BANDS = ((0.0, "0"), (0.3, "0-0.3"), (0.7, "0.3-0.7"), (1.0, "0.7-1"), (math.inf, "1+"))
BANDS = tuple(name for _, name in _BANDS)


def temperature_band(temperature: float) -> str:
    return next((name for top, name in _BANDS if temperature <= top), BANDS[-1])


def band_limits(band: str) -> tuple[float, float]:
    """Temperatures above the first and up to the second are in the band."""
    at = BANDS.index(band)
    return _BANDS[at - 1][0] if at else -math.inf, _BANDS[at][0]


def parse_mix(text: str) -> tuple[tuple[float, float], ...]:
    """(temperature, share) pairs whose shares sum to 1. A single number has all of it."""
    pairs: list[tuple[float, float]] = []
    for part in text.split(","):
        temperature, colon, share = part.strip().partition(":")
        try:
            value = float(temperature)
            weight = float(share.strip().removesuffix("%")) / 100 if colon else 1.0
        except ValueError:
            raise _wrong(text, f"{part.strip()!r} is not TEMPERATURE:SHARE%") from None
        if not math.isfinite(value) or not 0 <= value <= MAX_TEMPERATURE:
            raise _wrong(text, f"{value:g} is no temperature between 0 and {MAX_TEMPERATURE:g}")
        if not math.isfinite(weight) or weight <= 0:
            raise _wrong(text, f"the share of {value:g} must be greater than 0 %")
        if any(value == other for other, _ in pairs):
            raise _wrong(text, f"{value:g} is there twice")
        pairs.append((value, weight))
    total = sum(weight for _, weight in pairs)
    if not math.isclose(total, 1.0, abs_tol=1e-6):
        raise _wrong(text, f"the shares sum to {100 * total:g} %")
    return tuple(pairs)


def assign_temperatures(mix: Sequence[tuple[float, float]], count: int, seed: int) -> list[float]:
    """A temperature for each of `count` requests, in the shares of the mix, shuffled.

    Requests left over by rounding down go to the temperatures that lost most by it.
    """
    exact = [(share * count, temperature) for temperature, share in mix]
    counts = [math.floor(amount + 1e-9) for amount, _ in exact]
    by_loss = sorted(range(len(exact)), key=lambda i: counts[i] - exact[i][0])
    for index in by_loss[: count - sum(counts)]:
        counts[index] += 1
    assigned = [t for number, (_, t) in zip(counts, exact, strict=True) for _ in range(number)]
    random.Random(seed).shuffle(assigned)
    return assigned


def _wrong(text: str, what: str) -> OptionError:
    return OptionError(f"temperature mix {text!r}: {what}; write e.g. 0.0:60%,0.8:40%")
