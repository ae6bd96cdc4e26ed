"""Plain replicas among the watched ones as the control, under the same load. Pure.

A replica's pace (seconds of a text for each token) depends on how many texts it writes at once, so
stretches of time are put into bands of load, and paces are compared band by band. Within a band the
loads may still differ on average: that is corrected by how pace depends on load, over all bands.
The bands count by the tokens of the speculating side: the answer is for its traffic.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from outdraft.observe.reading import Growth
from outdraft.stats.clusters import degrees_of_freedom
from outdraft.watch.benefit.jackknife import (
    FEWEST_UNITS,
    MOST_UNITS,
    Floats,
    bounds,
    variance_left_out,
)
from outdraft.watch.findings import Benefit, Source
from outdraft.workload.running import running_band

Fleet = Mapping[str, Sequence[Growth]]  # replica → what it did, from one look to the next

_MACHINES = (
    "the plain and the speculating machine are taken to be equally fast and to get alike requests"
)
_REPLICAS = "plain and speculating replicas are taken to get requests that are alike"
_FEWEST_PLAIN = 3  # units in which a band has plain tokens
_LEAST_SHARE = 0.2  # of the speculating tokens must be in bands that both sides have


def control_benefit(speculating: Fleet, plain: Fleet) -> Benefit | None:
    """None where no load is shared. Replicas are a sample too, where a side has several: what one
    of them is faster by is no effect of speculation."""
    table = _Table.made(speculating, plain)
    return None if table is None else table.benefit()


def control_by_load(speculating: Fleet, plain: Fleet) -> tuple[Benefit, ...]:
    """Of each band of load that both sides have."""
    table = _Table.made(speculating, plain)
    if table is None:
        return ()
    tokens = table.speculating.sum((0, 1))[:, 0]
    found = (table.only(band).benefit(f"{band} at a time") for band in table.bands)
    return tuple(
        replace(each, share=float(own / tokens.sum()))
        for each, own in zip(found, tokens, strict=True)
        if each is not None
    )


@dataclass(frozen=True, slots=True)
class _Table:
    """Cells are (units, replicas, bands, 3): tokens, their seconds, tokens x load."""

    bands: tuple[str, ...]
    speculating: Floats
    plain: Floats
    has_both: Floats  # (bands,): 1 where a band can be compared
    corrections: Floats  # (bands,): of the plain pace, for loads that differ within a band
    start: float
    end: float
    running: float

    @classmethod
    def made(cls, speculating: Fleet, plain: Fleet) -> "_Table | None":
        sides = [_usable(side) for side in (speculating, plain)]
        if not all(sides):
            return None
        every = [each for side in sides for row in side.values() for each in row]
        start, end = min(each.start for each in every), max(each.end for each in every)
        lengths = [len(row) for side in sides for row in side.values()]
        units = min(MOST_UNITS, max(lengths))
        bands = tuple(dict.fromkeys(each.band for each in every))
        place = {band: at for at, band in enumerate(bands)}
        cells = []
        for side in sides:
            made = np.zeros((units, len(side), len(bands), 3))
            rows = [(number, each) for number, row in enumerate(side.values()) for each in row]
            middles = np.array([(each.start + each.end) / 2 - start for _, each in rows])
            unit = np.minimum(middles / max(end - start, 1e-9) * units, units - 1).astype(int)
            cell = [number * len(bands) + place[each.band] for number, each in rows]
            where = unit * len(side) * len(bands) + np.array(cell)
            np.add.at(made.reshape(-1, 3), where, [each[-3:] for _, each in rows])
            cells.append(made)
        own, others = cells
        has_both = (own.sum((0, 1))[:, 0] > 0) & (
            (others.sum(1)[..., 0] > 0).sum(0) >= min(_FEWEST_PLAIN, units)
        )
        totals = own.sum((0, 1, 2))
        if own.sum((0, 1))[has_both, 0].sum() < _LEAST_SHARE * totals[0]:
            return None
        return cls(
            bands,
            own,
            others,
            has_both.astype(float),
            _corrections(own.sum((0, 1)), others.sum((0, 1))),
            start,
            end,
            totals[2] / totals[0],
        )

    def only(self, band: str) -> "_Table":
        at = self.bands.index(band)
        kept = np.zeros(len(self.bands))
        kept[at] = self.has_both[at]
        return replace(self, has_both=kept)

    def benefit(self, part: str = "") -> Benefit | None:
        if not self.has_both.any():
            return None
        log = float(self._log(self.speculating.sum((0, 1)), self.plain.sum((0, 1))))
        replicas = [side.shape[1] for side in (self.speculating, self.plain)]
        assumes = _MACHINES if max(replicas) == 1 else _REPLICAS
        low = high = None
        term = self._term()
        if term is not None:
            low, high = bounds(log, term)
        return Benefit(
            Source.CONTROL, math.exp(log), low, high, self.start, self.end,
            assumes, self.running, part,
        )  # fmt: skip

    def _log(self, own: Floats, others: Floats) -> Floats:
        """Of the speedup; both (…, bands, 3)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            is_there = (self.has_both > 0) & (own[..., 0] > 0) & (others[..., 0] > 0)
            pace = others[..., 1] / others[..., 0]
            plain = np.where(is_there, own[..., 0] * pace * self.corrections, 0.0).sum(-1)
            spent = np.where(is_there, own[..., 1], 0.0).sum(-1)
            logs: Floats = np.log(plain / spent)
        return logs

    def _term(self) -> tuple[float, float] | None:
        """(variance, degrees of freedom); None: too little was seen. Stretches of time are drawn,
        or replicas, where that says more: what a replica is faster by stays the same all the
        time."""
        own, others = self.speculating, self.plain
        kept = self.has_both > 0
        used = (own[..., kept, 0].sum((1, 2)) > 0) | (others[..., kept, 0].sum((1, 2)) > 0)
        units = np.flatnonzero(used)
        if len(units) < FEWEST_UNITS:
            return None
        logs = self._log(
            own.sum((0, 1)) - own.sum(1)[units], others.sum((0, 1)) - others.sum(1)[units]
        )
        if not np.isfinite(logs).all():
            return None
        in_time = variance_left_out(logs), len(units) - 1.0
        of_replicas = self._of_replicas()
        return in_time if of_replicas is None else max(in_time, of_replicas)

    def _of_replicas(self) -> tuple[float, float] | None:
        """A side with one replica is taken to vary as the other side does. None where both have
        one."""
        own, others = self.speculating.sum((0, 1)), self.plain.sum((0, 1))
        terms: list[tuple[float, int] | None] = []
        for cells in (self.speculating, self.plain):
            parts = cells.sum(0)
            is_own = cells is self.speculating
            logs = self._log(own - parts, others) if is_own else self._log(own, others - parts)
            logs = logs[np.isfinite(logs)]
            terms.append((variance_left_out(logs), len(logs) - 1) if len(logs) > 1 else None)
        known = [each for each in terms if each is not None]
        if not known:
            return None
        if len(known) == 1:
            [(variance, df)] = known
            return variance * (df + 2), df  # of df + 1 replicas, and of a single one
        return sum(variance for variance, _ in known), degrees_of_freedom(*known)


class _Row(NamedTuple):
    """A stretch of one replica."""

    start: float
    end: float
    band: str
    tokens: float
    seconds: float
    weighted: float  # tokens x load


def _usable(fleet: Fleet) -> dict[str, list[_Row]]:
    """Stretches that wrote something at a known load; replicas without any are left out."""
    kept = {name: [made for each in row if (made := _row(each)) is not None]
            for name, row in fleet.items()}  # fmt: skip
    return {name: row for name, row in kept.items() if row}


def _row(growth: Growth) -> _Row | None:
    tokens = growth.counters.get("decode_tokens", 0.0)
    seconds = growth.counters.get("decode_seconds", 0.0)
    running = growth.gauge("running_requests")
    if not (tokens > 0 and seconds > 0) or running is None:
        return None
    load = max(running, 1.0)  # texts at a time: something was written
    return _Row(growth.start, growth.end, running_band(load), tokens, seconds, tokens * load)


def _corrections(own: Floats, others: Floats) -> Floats:
    """By how much the plain pace of a band would change at the load that the other side has there:
    (bands,). From a curve, pace by load, through the bands of both sides, which may differ by any
    factor. No pace gets better with more load, and none grows faster than the load."""
    with np.errstate(divide="ignore", invalid="ignore"):
        paces, loads = (
            np.log(np.stack([side[:, at] / side[:, 0] for side in (own, others)])) for at in (1, 2)
        )
    between = loads[0] - loads[1]
    is_there = np.isfinite(loads)
    num_bands = int(is_there.any(0).sum())
    if num_bands < 2:
        return np.ones(len(own))
    powers = [loads, loads**2] if num_bands > 2 else [loads]
    sides = [np.zeros_like(loads), np.zeros_like(loads)]
    sides[0][0], sides[1][1] = 1.0, 1.0
    weights = np.sqrt(np.stack([side[:, 0] / side[:, 0].sum() for side in (own, others)]))
    columns = np.stack([each[is_there] * weights[is_there] for each in (*sides, *powers)], 1)
    fitted = np.linalg.lstsq(columns, paces[is_there] * weights[is_there], rcond=None)[0][2:]
    middle = loads.mean(0)  # of a band, between its two loads
    slopes = fitted[0] + (2 * fitted[1] * middle if len(fitted) > 1 else 0.0)
    changed: Floats = np.exp(np.clip(slopes, 0.0, 1.0) * between)
    return np.where(np.isfinite(changed), changed, 1.0)
