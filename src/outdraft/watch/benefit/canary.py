"""Slices without speculation on the same server, against its decoding outside of them. Pure.

Replica by replica and band by band of running texts: seconds of a text for each token in slices,
over those outside. What texts wait while prompts of others are read is the same with and without
speculation; it is added to both. Where drafts were turned off, slices have them: then it is the
other way round, and the answer is the same.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from outdraft.observe.reading import TEMPERATURE, Growth
from outdraft.stats.clusters import degrees_of_freedom
from outdraft.watch.benefit.jackknife import (
    MOST_UNITS,
    Floats,
    bounds,
    corrected,
    equal_parts,
    variance_left_out,
)
from outdraft.watch.findings import Benefit, Source

# In slices, outside of them, and in steps that read prompts too
PLAIN, SPECULATING, MIXED = "plain", "speculating", "mixed"
TRIED, STOPPED, MIXED_STOPPED = "tried", "stopped", "mixed stopped"
_PLACES = {
    side: (is_stopped, place)
    for is_stopped, sides in enumerate(
        ((PLAIN, SPECULATING, MIXED), (TRIED, STOPPED, MIXED_STOPPED))
    )
    for place, side in enumerate(sides)
}
_IN_SLICES = (PLAIN, TRIED)

_ASSUMES = "the few steps without drafts are taken to be like all steps of the same server would be"
_TRIED = "the few steps with drafts are taken to be like all steps of the same server would be"
_FEWEST_SLICES = 3  # or stretches with slices; a slice has no chance in it but the machine's
_LEAST_SHARE = 0.2  # of the speculating tokens must be in bands that slices were in


def canary_benefit(fleet: Mapping[str, Sequence[Growth]], band: str = "") -> Benefit | None:
    """None where there were no slices; `band` of running texts or of temperatures, empty: all loads
    that had slices. Of temperatures it is what their drafts give to all texts beside them."""
    cells, is_stopped, growths = _cells(fleet, band)
    if not len(cells):
        return None
    num_units = (cells[:, :, 0, 0] > 0).sum(0)  # with slices, of each stratum
    share = cells[:, num_units > 1, 1, 0].sum() / max(cells[:, :, 1, 0].sum(), 1.0)
    if share >= _LEAST_SHARE:
        cells, is_stopped = cells[:, num_units > 1], is_stopped[num_units > 1]
        num_units = num_units[num_units > 1]
    whole = cells.sum(0)
    log = float(_log(whole, is_stopped))
    if not math.isfinite(log):
        return None
    low = high = None
    if share >= _LEAST_SHARE and (cells[:, :, 0, 0].sum(1) > 0).sum() >= _FEWEST_SLICES:
        logs = _log(whole - cells, is_stopped)
        if np.isfinite(logs).all():
            log = corrected(log, logs)
            low, high = bounds(log, (variance_left_out(logs), _freedom(whole, num_units)))
    start, end = min(each.start for each in growths), max(each.end for each in growths)
    part = band if not band or band.startswith(TEMPERATURE) else f"{band} at a time"
    is_off_now = _is_stopped(growths, band)
    return Benefit(
        Source.CANARY, math.exp(log), low, high, start, end, _TRIED if is_off_now else _ASSUMES,
        _mean_running(growths), part, is_stopped=is_off_now,
    )  # fmt: skip


def _is_stopped(growths: Sequence[Growth], band: str) -> bool:
    """By the newest stretch with texts outside of slices."""
    spent = {SPECULATING: 0.0, STOPPED: 0.0}
    for each in sorted(growths, key=lambda each: each.end, reverse=True):
        for (side, of_band), (_, seconds) in each.slices.items():
            if side in spent and _is_of(band, of_band):
                spent[side] += seconds
        if any(spent.values()):
            break
    return spent[STOPPED] > spent[SPECULATING]


def _freedom(whole: Floats, num_units: Floats) -> float:
    """Degrees of freedom: most of the error is that of the slices, of which some strata have few.
    A stratum counts by its share of what would be spent without speculation."""
    shares = whole[:, 1, 0] * whole[:, 0, 1] / whole[:, 0, 0]
    shares = shares / shares.sum()
    return degrees_of_freedom(
        *(
            (float(own**2 / count), int(count) - 1)
            for own, count in zip(shares, num_units, strict=True)
        )
    )


def _mean_running(growths: Sequence[Growth]) -> float | None:
    """Of a replica, on average over replicas and time."""
    known = [each for each in growths if "running_requests" in each.gauge_seconds]
    busy = math.fsum(each.gauge_seconds["running_requests"] for each in known)
    seconds = math.fsum(each.seconds for each in known)
    return busy / seconds if seconds > 0 else None


def canary_by_part(fleet: Mapping[str, Sequence[Growth]]) -> tuple[Benefit, ...]:
    """Of each band of running texts, and each of temperatures, that had slices. The share of a
    band of temperatures is that of all texts that are written beside one of it."""
    keys = (key for row in fleet.values() for each in row for key in each.slices)
    bands = dict.fromkeys(band for side, band in keys if side in _IN_SLICES)
    tokens: defaultdict[str, float] = defaultdict(float)
    for row in fleet.values():
        for each in row:
            for (side, band), (num_tokens, _) in each.slices.items():
                tokens[band] += num_tokens if side not in _IN_SLICES else 0.0
    total = sum(num_tokens for band, num_tokens in tokens.items() if _is_of("", band))
    found = ((band, canary_benefit(fleet, band)) for band in bands)
    return tuple(
        replace(each, share=min(tokens[band] / total, 1.0) if total else None)
        for band, each in found
        if each is not None
    )


def _is_of(wanted: str, band: str) -> bool:
    return band == wanted if wanted else not band.startswith(TEMPERATURE)


def _cells(
    fleet: Mapping[str, Sequence[Growth]], band: str
) -> tuple[Floats, NDArray[np.bool_], list[Growth]]:
    """(units, strata, sides, 2): tokens and seconds. A stratum is a band of a replica while it
    drafts, or while it is stopped, as the second one says. Units are stretches of time of a replica
    that have about as much time in slices each."""
    growths: list[Growth] = []
    strata: dict[tuple[str, str, int], int] = {}
    rows: list[tuple[int, int, int, float, float]] = []  # (unit, stratum, side, tokens, seconds)
    num_units = 0
    for name, row in fleet.items():
        kept = [each for each in row if each.slices]
        weights = [_slice_seconds(each, band) for each in kept]
        # A slice may lie in two looks: neighbours count as one.
        begins = [now > 0 and not before > 0 for before, now in pairwise([0.0, *weights])]
        count = min(MOST_UNITS, max(sum(begins), sum(weight > 0 for weight in weights) // 2))
        if not count:
            continue
        growths += kept
        for each, unit in zip(kept, equal_parts(weights, count), strict=True):
            for (side, of_band), (tokens, seconds) in each.slices.items():
                if side in _PLACES and _is_of(band, of_band):
                    is_stopped, place = _PLACES[side]
                    stratum = strata.setdefault((name, of_band, is_stopped), len(strata))
                    rows.append((num_units + unit, stratum, place, tokens, seconds))
        num_units += count
    cells = np.zeros((num_units, len(strata), 3, 2))
    for unit, stratum, place, tokens, seconds in rows:
        cells[unit, stratum, place] += (tokens, seconds)
    return cells, np.array([bool(is_stopped) for _, _, is_stopped in strata]), growths


def _slice_seconds(growth: Growth, band: str) -> float:
    return math.fsum(
        seconds
        for (side, of_band), (_, seconds) in growth.slices.items()
        if side in _IN_SLICES and _is_of(band, of_band)
    )


def _log(cells: Floats, is_stopped: NDArray[np.bool_]) -> Floats:
    """Of the speedup: (…, strata, sides, 2) → (…,)."""
    tokens, seconds = cells[..., 0], cells[..., 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        paces = seconds / tokens
        is_there = (tokens[..., 0] > 0) & (tokens[..., 1] > 0) & (seconds[..., 1] > 0)
        # Beyond what its tokens take otherwise, a step with prompts makes texts wait.
        waited = seconds[..., 2] - tokens[..., 2] * paces[..., 1]
        written = tokens[..., 1] + tokens[..., 2]
        in_slices = np.where(is_there, written * paces[..., 0] + waited, 0.0)
        spent = np.where(is_there, seconds[..., 1] + seconds[..., 2], 0.0)
        plain = np.where(is_stopped, spent, in_slices).sum(-1)
        drafted = np.where(is_stopped, in_slices, spent).sum(-1)
        logs: Floats = np.log(plain / drafted)
    return logs
