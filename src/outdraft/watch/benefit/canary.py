"""Slices without speculation on the same server, against its decoding outside of them. Pure.

Replica by replica and band by band of running texts: seconds of a text for each token in slices,
over those outside. What texts wait while prompts of others are read is the same with and without
speculation; it is added to both.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from outdraft.observe.reading import Growth
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

PLAIN, SPECULATING, MIXED = _SIDES = ("plain", "speculating", "mixed")

_ASSUMES = "the few steps without drafts are taken to be like all steps of the same server would be"
_FEWEST_SLICES = 3  # or stretches with slices; a slice has no chance in it but the machine's
_LEAST_SHARE = 0.2  # of the speculating tokens must be in bands that slices were in


def canary_benefit(fleet: Mapping[str, Sequence[Growth]], band: str = "") -> Benefit | None:
    """None where there were no slices; `band` of running texts, empty: all that had slices."""
    cells, growths = _cells(fleet, band)
    if not len(cells):
        return None
    num_units = (cells[:, :, 0, 0] > 0).sum(0)  # with slices, of each stratum
    share = cells[:, num_units > 1, 1, 0].sum() / max(cells[:, :, 1, 0].sum(), 1.0)
    if share >= _LEAST_SHARE:
        cells, num_units = cells[:, num_units > 1], num_units[num_units > 1]
    whole = cells.sum(0)
    log = float(_log(whole))
    if not math.isfinite(log):
        return None
    low = high = None
    if share >= _LEAST_SHARE and (cells[:, :, 0, 0].sum(1) > 0).sum() >= _FEWEST_SLICES:
        logs = _log(whole - cells)
        if np.isfinite(logs).all():
            log = corrected(log, logs)
            low, high = bounds(log, (variance_left_out(logs), _freedom(whole, num_units)))
    start, end = min(each.start for each in growths), max(each.end for each in growths)
    part = f"{band} at a time" if band else ""
    return Benefit(
        Source.CANARY, math.exp(log), low, high, start, end, _ASSUMES, _mean_running(growths), part
    )  # fmt: skip


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


def canary_by_load(fleet: Mapping[str, Sequence[Growth]]) -> tuple[Benefit, ...]:
    """Of each band of running texts that had slices."""
    keys = (key for row in fleet.values() for each in row for key in each.slices)
    bands = dict.fromkeys(band for side, band in keys if side == PLAIN)
    tokens: defaultdict[str, float] = defaultdict(float)
    for row in fleet.values():
        for each in row:
            for (side, band), (num_tokens, _) in each.slices.items():
                tokens[band] += num_tokens if side != PLAIN else 0.0
    total = sum(tokens.values())
    found = ((band, canary_benefit(fleet, band)) for band in bands)
    return tuple(
        replace(each, share=tokens[band] / total if total else None)
        for band, each in found
        if each is not None
    )


def _cells(fleet: Mapping[str, Sequence[Growth]], band: str) -> tuple[Floats, list[Growth]]:
    """(units, strata, sides, 2): tokens and seconds; a stratum is a band of a replica. Units are
    stretches of time of a replica that have about as much time in slices each."""
    growths: list[Growth] = []
    strata: dict[tuple[str, str], int] = {}
    rows: list[tuple[int, int, int, float, float]] = []  # (unit, stratum, side, tokens, seconds)
    num_units = 0
    for name, row in fleet.items():
        kept = [each for each in row if each.slices]
        weights = [_plain_seconds(each, band) for each in kept]
        # A slice may lie in two looks: neighbours count as one.
        begins = [now > 0 and not before > 0 for before, now in pairwise([0.0, *weights])]
        count = min(MOST_UNITS, max(sum(begins), sum(weight > 0 for weight in weights) // 2))
        if not count:
            continue
        growths += kept
        for each, unit in zip(kept, equal_parts(weights, count), strict=True):
            for (side, of_band), (tokens, seconds) in each.slices.items():
                if side in _SIDES and band in ("", of_band):
                    stratum = strata.setdefault((name, of_band), len(strata))
                    at = num_units + unit, stratum, _SIDES.index(side)
                    rows.append((*at, tokens, seconds))
        num_units += count
    cells = np.zeros((num_units, len(strata), len(_SIDES), 2))
    for unit, stratum, place, tokens, seconds in rows:
        cells[unit, stratum, place] += (tokens, seconds)
    return cells, growths


def _plain_seconds(growth: Growth, band: str) -> float:
    return math.fsum(
        seconds
        for (side, of_band), (_, seconds) in growth.slices.items()
        if side == PLAIN and band in ("", of_band)
    )


def _log(cells: Floats) -> Floats:
    """Of the speedup: (…, strata, sides, 2) → (…,)."""
    tokens, seconds = cells[..., 0], cells[..., 1]
    with np.errstate(divide="ignore", invalid="ignore"):
        paces = seconds / tokens
        is_there = (tokens[..., 0] > 0) & (tokens[..., 1] > 0) & (seconds[..., 1] > 0)
        # Beyond what its tokens take otherwise, a step with prompts makes texts wait.
        waited = seconds[..., 2] - tokens[..., 2] * paces[..., 1]
        written = tokens[..., 1] + tokens[..., 2]
        plain = np.where(is_there, written * paces[..., 0] + waited, 0.0).sum(-1)
        spent = np.where(is_there, seconds[..., 1] + seconds[..., 2], 0.0).sum(-1)
        logs: Floats = np.log(plain / spent)
    return logs
